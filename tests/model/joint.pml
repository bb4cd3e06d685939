/* joint.pml - memory that several processes of a session hold, as src/ledger/joint.c keeps it, step by step.
 *
 * All processes want the joint place of the same name: a process that finds none makes it. Each joins, has it stand for BYTES,
 * leaves, and ends; before each load, store and compare-and-swap on shared memory it may stop for ever or die.
 * A process that is only late needs nothing of its own: the search goes through every interleaving.
 *
 * How bytes are granted is ledger.pml's affair; here everything fits. An entry is state, generation and how
 * often the joint place was joined, which change together and are read at once (usage_owner_read()). A word is
 * bytes[s] and its stamp, word_generation[s] and word_counter[s].
 *
 * What is asserted:
 *   1  at most one joint place has the name: what several hold is charged once
 *   2  a joint place that a process has joined is not cleared before that one leaves it or is reaped, whatever
 *      becomes of the one that made it: also if it stopped
 *   3  once the dead are reaped and all others have left, every place is free and empty
 *   4  every process that has not stopped ends (no invalid end state)
 *
 * Scenarios choose HOLDERS, how many of them may stop (STOPPERS) and TRIES.
 *
 * BROKEN_x takes one rule out of the algorithm; the tests expect each of them to be caught. */

#define PLACES 2
#define BYTES 1
#ifndef TRIES
#define TRIES 2 /* how often a name is looked for anew: JOIN_ATTEMPTS */
#endif
#define NONE 255

#define FREE 0
#define CANDIDATE 1
#define OWNED 2
#define CLEARING 3

/* Shared memory. */
byte state[PLACES];
byte generation[PLACES];
byte joined[PLACES];
bit hold[PLACES * HOLDERS]; /* of joint place s by process p: s * HOLDERS + p */
byte bytes[PLACES];
byte word_generation[PLACES];
byte word_counter[PLACES];

#define IS_LEFT_DEAD(p) (dead[p] && !reaped[p])
#if HOLDERS > 2
#define IS_LEFT_DEAD_2 IS_LEFT_DEAD(2)
#else
#define IS_LEFT_DEAD_2 false
#endif

/* What only the proof sees. */
byte believed[HOLDERS]; /* the joint place that process p has joined, + 1; 0: none */
bit dead[HOLDERS];      /* its pidfd fired */
bit reaped[HOLDERS];
bit stopped_for_ever;   /* somebody lives and does nothing any more */
byte running;

#define MAY_STOP if :: true :: may_stop -> goto stopped fi

#define READ_ENTRY(s) seen_state = state[s]; seen_generation = generation[s]; seen_joined = joined[s]
#define IS_AS_SEEN(s) (state[s] == seen_state && generation[s] == seen_generation && joined[s] == seen_joined)

inline nobody_believes(s)
{
    d_step {
        j = 0;
        do
        :: j < HOLDERS -> assert(believed[j] != s + 1); j++
        :: else -> break
        od;
        j = 0
    }
}

/* The joint place of the name, or NONE; beside `own`, a candidate, other candidates are struck out. */
inline find(own)
{
    i = 0;
    found = NONE;
    do
    :: i == PLACES -> break
    :: i < PLACES && i == own -> i++
    :: i < PLACES && i != own ->
        atomic { MAY_STOP; READ_ENTRY(i) };
        if
        :: seen_state == CANDIDATE && own != NONE ->
            atomic {
                MAY_STOP;
                if
                :: IS_AS_SEEN(i) -> state[i] = FREE; joined[i] = 0; i++
                :: else /* it is looked at again */
                fi
            }
        :: seen_state == OWNED -> found = i; break
        :: else -> i++
        fi
    od;
    i = 0
}

/* usage_reap() of a place, after it was marked. */
inline clear(s)
{
    do
    :: true ->
        atomic { MAY_STOP; old_generation = word_generation[s]; old_counter = word_counter[s] };
        atomic { MAY_STOP; old_bytes = bytes[s] };
        atomic {
            MAY_STOP;
            if
            :: old_generation != seen_generation &&
               (old_bytes == 0 || state[s] != CLEARING || generation[s] != seen_generation) -> break
            :: else
            fi
        };
        atomic {
            MAY_STOP;
            if
            :: bytes[s] == old_bytes && word_generation[s] == old_generation && word_counter[s] == old_counter ->
                nobody_believes(s);
                bytes[s] = 0;
                word_generation[s] = seen_generation + 1;
                word_counter[s] = 0;
                break
            :: else
            fi
        }
    od;
    atomic {
        MAY_STOP;
        if
        :: state[s] == CLEARING && generation[s] == seen_generation -> state[s] = FREE; joined[s] = 0
        :: else
        fi;
        old_generation = 0; old_counter = 0; old_bytes = 0
    }
}

/* Clear the joint place if nobody holds it. */
inline clear_unheld(s)
{
    do
    :: true ->
        atomic { MAY_STOP; READ_ENTRY(s) };
        if
        :: seen_state == OWNED ->
            k = 0;
            do
            :: k < HOLDERS ->
                atomic {
                    MAY_STOP;
                    if
                    :: hold[s * HOLDERS + k] -> break
                    :: else -> k++
                    fi
                }
            :: else -> break
            od;
            if
            :: k < HOLDERS -> break
            :: else ->
                atomic {
                    MAY_STOP;
                    if
                    :: IS_AS_SEEN(s) ->
                        nobody_believes(s);
                        state[s] = CLEARING;
                        seen_state = CLEARING
                    :: else
                    fi
                }
            fi
        :: else
        fi;
        if
        :: seen_state == CLEARING -> clear(s); break
        :: seen_state == FREE || seen_state == CANDIDATE -> break
        :: else /* somebody joined or left meanwhile */
        fi
    od;
    atomic { k = 0; seen_state = 0; seen_generation = 0; seen_joined = 0 }
}

inline leave(s)
{
    atomic { MAY_STOP; hold[s * HOLDERS + me] = 0; believed[me] = 0 };
    clear_unheld(s)
}

inline only_one_has_the_name()
{
    d_step {
        i = 0;
        j = 0;
        do
        :: i < PLACES -> j = j + (state[i] == OWNED); i++
        :: else -> break
        od;
        assert(j <= 1);
        i = 0;
        j = 0
    }
}

/* Sets `got` to the joint place's index if it is this process's now. */
inline make()
{
    i = 0;
    own = NONE;
    do
    :: i == PLACES -> break
    :: i < PLACES ->
        atomic { MAY_STOP; READ_ENTRY(i) };
        if
        :: seen_state == FREE ->
            atomic {
                MAY_STOP;
                if
                :: IS_AS_SEEN(i) ->
                    state[i] = CANDIDATE;
                    generation[i] = seen_generation + 1;
                    joined[i] = 0;
                    own = i;
                    own_generation = generation[i];
                    break
                :: else -> i++
                fi
            }
        :: else -> i++
        fi
    od;
    if
    :: own != NONE ->
        atomic { MAY_STOP; hold[own * HOLDERS + me] = 1 };
#ifndef BROKEN_LOOKS_FOR_NOBODY
        find(own);
#endif
        atomic {
            MAY_STOP;
            if
            :: found == NONE && state[own] == CANDIDATE && generation[own] == own_generation ->
                state[own] = OWNED;
                joined[own] = 1;
                got = own;
                believed[me] = own + 1;
                only_one_has_the_name()
            :: else
            fi
        };
        if
        :: got == NONE ->
            atomic {
                MAY_STOP;
                if
                :: state[own] == CANDIDATE && generation[own] == own_generation -> state[own] = FREE
                :: else
                fi
            };
            leave(own)
        :: else
        fi
    :: else
    fi;
    atomic { own = 0; own_generation = 0; found = NONE; i = 0 }
}

inline join(s)
{
#ifndef BROKEN_HOLDS_LAST
    atomic { MAY_STOP; hold[s * HOLDERS + me] = 1 };
#endif
    do
    :: true ->
        atomic { MAY_STOP; READ_ENTRY(s) };
        if
        :: seen_state == OWNED ->
            atomic {
                MAY_STOP;
                if
                :: IS_AS_SEEN(s) ->
#ifndef BROKEN_JOINS_UNSEEN
                    joined[s] = seen_joined + 1;
#endif
                    got = s;
                    believed[me] = s + 1;
                    break
                :: else
                fi
            }
        :: else -> break
        fi
    od;
#ifdef BROKEN_HOLDS_LAST
    atomic { MAY_STOP; hold[s * HOLDERS + me] = 1 };
#endif
    if
    :: got == NONE -> leave(s)
    :: else
    fi
}

/* ledger_joint_charge(), by what of ask() matters to the word's generation. */
inline raise(s)
{
    atomic { MAY_STOP; own_generation = generation[s] };
    do
    :: true ->
        atomic { MAY_STOP; old_generation = word_generation[s]; old_counter = word_counter[s] };
        atomic { MAY_STOP; old_bytes = bytes[s] };
        if
        :: old_generation == own_generation && old_bytes >= BYTES -> break
        :: old_generation == own_generation && old_bytes < BYTES ->
            atomic {
                MAY_STOP;
                if
                :: bytes[s] == old_bytes && word_generation[s] == old_generation && word_counter[s] == old_counter ->
                    bytes[s] = BYTES;
                    word_counter[s] = old_counter + 1
                :: else
                fi
            }
        :: old_generation != own_generation ->
            atomic { MAY_STOP; assert(state[s] == OWNED && generation[s] == own_generation) };
            atomic {
                MAY_STOP;
                if
                :: bytes[s] == old_bytes && word_generation[s] == old_generation && word_counter[s] == old_counter ->
                    bytes[s] = 0;
                    word_generation[s] = own_generation;
                    word_counter[s] = 0
                :: else
                fi
            }
        fi
    od;
    atomic { own_generation = 0; old_generation = 0; old_counter = 0; old_bytes = 0 }
}

proctype holder(byte me; bit may_stop)
{
    byte tries, i, j, k, found = NONE, got = NONE, own, own_generation;
    byte seen_state, seen_generation, seen_joined, old_generation, old_counter, old_bytes;

    do
    :: got == NONE && tries < TRIES ->
        tries++;
        find(NONE);
        atomic { seen_state = 0; seen_generation = 0; seen_joined = 0 };
        if
        :: found != NONE -> join(found)
        :: else -> make()
        fi;
        found = NONE
    :: else -> break
    od;
    tries = 0;
    if
    :: got != NONE ->
        raise(got);
        atomic { MAY_STOP; assert(state[got] == OWNED && bytes[got] == BYTES) };
        leave(got)
    :: else
    fi;
    atomic { running--; goto done };

stopped:
    atomic {
        running--;
        if
        :: dead[me] = 1
        :: stopped_for_ever = 1
        fi
    };
done:
    atomic {
        tries = 0; i = 0; j = 0; k = 0; found = 0; got = 0; own = 0; own_generation = 0; seen_state = 0;
        seen_generation = 0; seen_joined = 0; old_generation = 0; old_counter = 0; old_bytes = 0
    }
}

/* usage_joint_reap() of dead processes, until no other runs. That several may do so together, and stop midway, is
 * ledger.pml's affair as well. */
proctype reaper()
{
    bit may_stop;
    byte me, s, j, k;
    byte seen_state, seen_generation, seen_joined, old_generation, old_counter, old_bytes;

    do
    :: atomic {
           if
           :: IS_LEFT_DEAD(0) -> me = 0
           :: IS_LEFT_DEAD(1) -> me = 1
           :: IS_LEFT_DEAD_2 -> me = 2
           fi
       };
       s = 0;
       do
       :: s < PLACES ->
           atomic { MAY_STOP; READ_ENTRY(s) };
           if
           :: seen_state == CANDIDATE ->
               atomic {
                   MAY_STOP;
                   if
                   :: IS_AS_SEEN(s) -> state[s] = FREE; joined[s] = 0
                   :: else
                   fi
               }
           :: else
           fi;
           atomic {
               MAY_STOP;
               hold[s * HOLDERS + me] = 0;
               if
               :: believed[me] == s + 1 -> believed[me] = 0
               :: else
               fi
           };
           clear_unheld(s);
           s++
       :: else -> break
       od;
       atomic { reaped[me] = 1; me = 0; s = 0 }
    :: atomic {
           running == 0 && !IS_LEFT_DEAD(0) && !IS_LEFT_DEAD(1) && !IS_LEFT_DEAD_2 -> break
       }
    od;
stopped:
    atomic {
        me = 0; s = 0; j = 0; k = 0; seen_state = 0; seen_generation = 0; seen_joined = 0; old_generation = 0;
        old_counter = 0; old_bytes = 0
    }
}

init
{
    byte s;

    atomic {
        running = HOLDERS;
        run holder(0, STOPPERS > 0);
        run holder(1, STOPPERS > 1);
#if HOLDERS > 2
        run holder(2, STOPPERS > 2);
#endif
        run reaper()
    };

    atomic {
        _nr_pr == 1 ->
        do
        :: s < PLACES ->
            assert(stopped_for_ever || (state[s] == FREE && bytes[s] == 0));
            s++
        :: else -> break
        od
    }
}

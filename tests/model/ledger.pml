/* ledger.pml - the ledger's request algorithm for one GPU, as src/ledger/ runs it, step by step.
 *
 * Every load, store and compare-and-swap on shared memory is one atomic step, and before each of them its
 * process may stop for ever or die. A process that is only late needs nothing of its own: the search goes
 * through every interleaving. Only dying lets a reaper take the slot.
 *
 * Names are those of src/ledger/usage.h. A word is bytes[s] and stamp[s]: they are read one after the other,
 * and change together. A stamp is generation * 32 + counter * 2 + refused.
 *
 * What is asserted, by the numbers of the contract:
 *   1  after every grant, no more bytes are granted than the limit
 *   2  a request is refused only if, at some moment of its call, it did not fit beside the granted bytes
 *   3  a dead process's slot ends free and empty; everybody else's word holds exactly what its owner believes;
 *      nothing is ever granted to a free slot
 *   4  every process that has not stopped ends (no invalid end state; with -DNP: no cycle at all), and 2 holds
 *      while undecided and hopeless requests of stopped processes stand
 * 5 (no system call) is for the C code.
 *
 * Scenarios choose SLOTS, LIMIT, REAPERS and, for each requester, what it asks for (FIRST_n, SECOND_n: bytes,
 * 0 for nothing) before it ends; between the two it keeps or releases what it got. HEIR: a new process that
 * takes slot 0 when it is free again. FORCE: slot 0's first request is a charge, which is never refused.
 * LAGGING: slots start with words of an older generation, as those of a GPU that nobody had used. NOBODY_STOPS:
 * what it says, for searches that need the room.
 *
 * BROKEN_x takes one rule out of the algorithm; the tests expect each of them to be caught. */

#ifndef FIRST_0
#define FIRST_0 0
#endif
#ifndef FIRST_1
#define FIRST_1 0
#endif
#ifndef FIRST_2
#define FIRST_2 0
#endif
#ifndef SECOND_0
#define SECOND_0 0
#endif
#ifndef SECOND_1
#define SECOND_1 0
#endif
#ifndef SECOND_2
#define SECOND_2 0
#endif
#ifndef HEIR_ASKS
#define HEIR_ASKS 0
#endif

#define FREE 0
#define OWNED 1
#define CLEARING 2
#define NOBODY 0
#define FIRST_STAMP(generation) ((generation) * 32)
#define GENERATION(stamp) ((stamp) / 32)
#define NEXT(stamp, refusal) (((stamp) / 2 + 1) * 2 + (refusal)) /* the counter never reaches 16 here */

#define IS_DEAD(s) (owner_state[s] != FREE && dead_generation[s] == owner_generation[s])
#if SLOTS > 1
#define IS_DEAD_1 IS_DEAD(1)
#else
#define IS_DEAD_1 false
#endif
#if SLOTS > 2
#define IS_DEAD_2 IS_DEAD(2)
#else
#define IS_DEAD_2 false
#endif

/* Shared memory. */
byte bytes[SLOTS];
byte stamp[SLOTS];
byte asked[SLOTS];
bit forced[SLOTS];
byte deciding_slot; /* slot + 1, or NOBODY */
byte deciding_stamp;
byte owner_state[SLOTS];
byte owner_generation[SLOTS];

/* What only the proof sees. */
byte believed[SLOTS];       /* what the slot's owner knows to hold, once its call is over */
byte dead_generation[SLOTS]; /* the pidfd of the owner of this generation fired */
bit in_call[SLOTS];         /* a request stands and is undecided */
bit did_not_fit[SLOTS];     /* at some moment of this call */
bit in_doubt[SLOTS];        /* its owner stopped inside a call, so that nobody knows what it believes */
bit was_forced;             /* a charge may pass the limit after the fact */
byte running;               /* requesters that still take steps */

inline sum_granted(result)
{
    result = 0;
    k = 0;
    do
    :: k < SLOTS -> result = result + bytes[k]; k++
    :: else -> break
    od;
    k = 0
}

/* Called after every change that adds bytes, and at the start of a call. */
inline note_who_does_not_fit()
{
    d_step {
        sum_granted(whole);
        j = 0;
        do
        :: j < SLOTS ->
            if
            :: in_call[j] && whole + asked[j] > LIMIT -> did_not_fit[j] = 1
            :: else
            fi;
            j++
        :: else -> break
        od;
        j = 0;
        whole = 0
    }
}

#ifdef NOBODY_STOPS
#define MAY_STOP skip
#else
#define MAY_STOP if :: true :: goto stopped fi
#endif

/* Helpers and owners alike: decide the request (s, h) that stands in the deciding word. It stays there. */
inline decide(s, h)
{
    atomic { MAY_STOP; undecided = (stamp[s] == h) };
    if
    :: undecided ->
        atomic { MAY_STOP; held = bytes[s] };
        atomic { MAY_STOP; request = asked[s]; force = forced[s] };
        i = 0;
        do
        :: i < SLOTS ->
            atomic {
                MAY_STOP;
                total = total + bytes[i];
#ifdef BROKEN_COUNTS_PENDING
                total = total + (in_call[i] -> asked[i] : 0);
#endif
                i++
            }
        :: else -> break
        od;
        atomic {
            MAY_STOP;
            if
#ifdef BROKEN_NO_SEQUENCE
            :: bytes[s] == held ->
#else
            :: bytes[s] == held && stamp[s] == h ->
#endif
                if
                :: force || total + request <= LIMIT -> /* its own bytes in the sum are still those */
                    bytes[s] = held + request;
                    stamp[s] = NEXT(h, 0);
                    if
                    :: force -> was_forced = 1
                    :: else
                    fi;
                    in_call[s] = 0;
                    assert(owner_state[s] != FREE);
                    note_who_does_not_fit();
                    sum_granted(total);
                    assert(was_forced || total <= LIMIT)
                :: else ->
                    assert(did_not_fit[s]);
                    stamp[s] = NEXT(h, 1);
                    in_call[s] = 0
                fi
            :: else
            fi;
            total = 0; held = 0; request = 0; force = 0; i = 0
        }
    :: else
    fi;
    undecided = 0
}

proctype requester(byte me; byte generation; byte first; byte second; bit force_first)
{
    byte ask, own, other_slot, other_stamp, standing_slot, standing_stamp;
    byte held, total, request, i, j, k, whole;
    bit undecided, force, round;

    ask = first;
    do
    :: ask > 0 ->
        /* A word of another generation is not ours yet: GPU not used before in this slot. */
        atomic { MAY_STOP; own = stamp[me] };
        if
        :: GENERATION(own) != generation ->
            atomic { MAY_STOP; held = bytes[me] };
            atomic {
                MAY_STOP;
                if
                :: owner_state[me] == OWNED && owner_generation[me] == generation
                :: else -> assert(false) /* nobody takes a living owner's slot */
                fi
            };
            atomic {
                MAY_STOP;
                if
                :: bytes[me] == held && stamp[me] == own -> bytes[me] = 0; stamp[me] = FIRST_STAMP(generation)
                :: else
                fi;
                held = 0;
                own = stamp[me];
                assert(GENERATION(own) == generation)
            }
        :: else
        fi;

        atomic {
            MAY_STOP;
            asked[me] = ask;
            forced[me] = (force_first && round == 0);
            in_call[me] = 1;
            in_doubt[me] = 1;
            did_not_fit[me] = 0;
            note_who_does_not_fit()
        };
        /* Two reads, that may belong to different requests. */
        atomic { MAY_STOP; standing_slot = deciding_slot };
        atomic {
            MAY_STOP;
            standing_stamp = deciding_stamp;
            if
#ifndef BROKEN_TRUSTS_ANYBODY
            :: standing_slot != me + 1 || standing_stamp == own -> standing_slot = NOBODY; standing_stamp = 0
#endif
            :: else
            fi
        };
        do
        :: true ->
            atomic {
                MAY_STOP;
                if
                :: deciding_slot == standing_slot && deciding_stamp == standing_stamp ->
                    deciding_slot = me + 1;
                    deciding_stamp = own;
                    other_slot = me;
                    other_stamp = own
                :: else ->
#ifdef BROKEN_WAITS
                    stamp[deciding_slot - 1] != deciding_stamp; /* waits for whoever is there to finish its own */
#endif
                    other_slot = deciding_slot - 1;
                    other_stamp = deciding_stamp
                fi
            };
#ifdef BROKEN_REPLACES_BLINDLY
            if
            :: other_slot == me && other_stamp == own -> decide(other_slot, other_stamp)
            :: else
            fi;
#else
            decide(other_slot, other_stamp);
#endif
            if
            :: other_slot == me && other_stamp == own -> break
            :: else -> standing_slot = other_slot + 1; standing_stamp = other_stamp
            fi
        od;
        standing_slot = 0;
        standing_stamp = 0;
        other_slot = 0;
        other_stamp = 0;
        atomic {
            MAY_STOP;
            in_doubt[me] = 0;
            own = stamp[me];
            assert(GENERATION(own) == generation);
            if
            :: own % 2 == 0 -> believed[me] = believed[me] + ask
            :: else
            fi;
            own = 0;
            assert(bytes[me] == believed[me])
        };

        /* Keep it, or give it back: the owner's compare-and-swap cannot fail here. */
        if
        :: true
        :: believed[me] > 0 ->
            atomic { MAY_STOP; own = stamp[me] };
            atomic { MAY_STOP; held = bytes[me] };
            atomic {
                MAY_STOP;
                assert(bytes[me] == held && stamp[me] == own);
                bytes[me] = held - believed[me];
                stamp[me] = NEXT(own, 0);
                believed[me] = 0;
                held = 0;
                own = 0
            }
        fi;
        if
        :: round == 0 -> round = 1; ask = second
        :: else -> break
        fi
    :: else -> break
    od;

stopped:
    /* Here at the end of its work too: it dies, or lives on for ever with what it holds. */
    atomic {
        ask = 0; own = 0; other_slot = 0; other_stamp = 0; standing_slot = 0; standing_stamp = 0; held = 0; total = 0; request = 0; i = 0;
        undecided = 0; force = 0; round = 0;
        running--;
        if
        :: dead_generation[me] = generation
        :: true
        fi
    }
}

/* Takes slot 0 once it is free again. */
proctype heir()
{
    byte generation;

    do
    :: atomic {
           owner_state[0] == FREE ->
           owner_generation[0] = owner_generation[0] + 1;
           owner_state[0] = OWNED;
           generation = owner_generation[0];
           believed[0] = 0;
           in_doubt[0] = 0;
           in_call[0] = 0;
           did_not_fit[0] = 0;
           run requester(0, generation, HEIR_ASKS, 0, 0);
           break
       }
    :: atomic { running == 1 && owner_state[0] == OWNED && !IS_DEAD(0) -> running--; break } /* it lives on */
    od
}

/* Clears dead slots, until no requester runs. Several may be at it, and all but one may stop midway. */
proctype reaper(bit may_stop)
{
    byte s, generation, old, held;
    bit mine;

#define REAPER_MAY_STOP if :: true :: may_stop -> goto gone fi

    do
    :: atomic {
           if
           :: IS_DEAD(0) -> s = 0
           :: IS_DEAD_1 -> s = 1
           :: IS_DEAD_2 -> s = 2
           fi;
           generation = owner_generation[s];
           mine = 1
       };
       atomic {
           REAPER_MAY_STOP;
           if
           :: owner_state[s] == OWNED && owner_generation[s] == generation -> owner_state[s] = CLEARING
           :: owner_state[s] == CLEARING && owner_generation[s] == generation
           :: else -> mine = 0
           fi
       };
       if
       :: mine ->
           do
           :: atomic { REAPER_MAY_STOP; old = stamp[s] };
              if
#ifndef BROKEN_REAPER_KEEPS_STAMP
#ifndef BROKEN_LATE_REAPER
              :: GENERATION(old) != generation -> break
#endif
#endif
              :: else
              fi;
              atomic { REAPER_MAY_STOP; held = bytes[s] };
              atomic {
                  REAPER_MAY_STOP;
                  if
                  :: bytes[s] == held && stamp[s] == old ->
                      bytes[s] = 0;
#ifndef BROKEN_REAPER_KEEPS_STAMP
#ifdef BROKEN_LATE_REAPER
                      stamp[s] = NEXT(old, 0);
#else
                      stamp[s] = FIRST_STAMP(generation + 1);
#endif
#endif
                      break
                  :: else
                  fi
              }
           od;
           atomic {
               REAPER_MAY_STOP;
               if
               :: owner_state[s] == CLEARING && owner_generation[s] == generation ->
                   owner_state[s] = FREE;
                   in_call[s] = 0;
                   believed[s] = 0;
                   in_doubt[s] = 0
               :: else
               fi
           }
       :: else
       fi;
       atomic { s = 0; generation = 0; old = 0; held = 0; mine = 0 }
    :: atomic {
           running == 0 && !IS_DEAD(0) && !IS_DEAD_1 && !IS_DEAD_2 -> break
       }
    od;
gone:
    atomic { s = 0; generation = 0; old = 0; held = 0; mine = 0 }
}

init
{
    byte s;

    atomic {
        do
        :: s < SLOTS ->
            owner_state[s] = OWNED;
            owner_generation[s] = 1;
#ifndef LAGGING
            stamp[s] = FIRST_STAMP(1);
#endif
            s++
        :: else -> break
        od;
        running = SLOTS;
#if HEIR_ASKS > 0
        running++;
#endif
#ifdef FORCE
        run requester(0, 1, FIRST_0, SECOND_0, 1);
#else
        run requester(0, 1, FIRST_0, SECOND_0, 0);
#endif
#if SLOTS > 1
        run requester(1, 1, FIRST_1, SECOND_1, 0);
#endif
#if SLOTS > 2
        run requester(2, 1, FIRST_2, SECOND_2, 0);
#endif
        run reaper(0);
#if REAPERS > 1
        run reaper(1);
#endif
#if HEIR_ASKS > 0
        run heir();
#endif
        s = 0
    };

    atomic {
        _nr_pr == 1 ->
        do
        :: s < SLOTS ->
            if
            :: dead_generation[s] == owner_generation[s] ->
                assert(owner_state[s] == FREE);
                assert(bytes[s] == 0)
            :: else ->
                assert(in_doubt[s] || bytes[s] == believed[s])
            fi;
            s++
        :: else -> break
        od
    }
}

/* moves.pml - memory that leaves the card and comes back: the daemon, the agents of processes, the card, the arenas.
 *
 * Each process is a session of its own with EXTENTS extents; the card has room for CARD extents, the arenas for ARENA
 * together. What an extent holds is a number that the program raises with each piece of work. The daemon has one
 * session leave for another, MOVES times in all.
 *
 *   evict      close the gate, drain; then extent by extent: take a chunk, copy out, see the copy done, release
 *   restore    extent by extent: take room on the card, copy in, see the copy done, give the chunk back; then open
 *              the gate
 *   ahead      bring the first extent of one that is away into room that is there, and keep its chunk (AHEADS times in all). When it
 *              leaves again, it does so without a copy; when all is restored, its chunk is given back
 *   roll back  restore what has left, after an eviction that failed half-way. Where that fails too, the process is
 *              partly away: its gate stays closed and nothing is lost.
 *
 * At any step, a process may be killed (KILLS) or stopped for good (STOPS), the daemon may die and another one begin
 * (RESTARTS), and a copy or a request for memory may fail (FAULTS).
 *
 * Checked: a program finds in each extent what it wrote last. That content exists, on the card or in an arena, after
 * every step. A restore is ordered only into room that is there. When everything has come to rest, whoever is not
 * stopped, or kept out by one that is, has done its work, and nothing of those that ended is left anywhere.
 *
 * The rules, each of which a BROKEN_ setting takes out:
 *   RELEASES_EARLY       the card's memory is released after the copy out is done, not when it is begun
 *   CHUNK_BACK_EARLY     a chunk is given back after the copy in is done
 *   DOES_NOT_DRAIN       a gate that closed has drained before the first copy
 *   OPENS_WHEN_ALONE     when the daemon has gone, a gate opens only if all its process has is on the card
 *   OPENS_AFTER_FAILURE  the same after a restore that failed
 *   BELIEVES_AWAY        a new daemon takes a process that has not told it where it is for one on the card
 *   BELIEVES_ALL_OUT     a process that could neither leave nor come back as a whole tells how much of it is on the card
 *   KEEPS_CHUNKS         the daemon frees the chunks of the dead, also of those that died before it began
 *   KEEPS_AHEAD          what came ahead has no chunk any more once its program works with it
 *   RESTORES_EARLY       the next one is restored after the last one has told that it is out */

#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef EXTENTS
#define EXTENTS 1
#endif
#ifndef CARD
#define CARD EXTENTS
#endif
#ifndef ARENA
#define ARENA (PROCESSES * EXTENTS)
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef AHEADS
#define AHEADS 0
#endif
#ifndef WORK
#define WORK 2
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef FAULTS
#define FAULTS 0
#endif

#define ALL (PROCESSES * EXTENTS)
#define NONE 255     /* no memory there */
#define NOTHING 254  /* memory that holds nothing yet */
#define UNKNOWN 255  /* nobody has told the daemon how many extents are on the card */
#define BUSY 254     /* it was told to move, and has not answered */

mtype = { EVICT, RESTORE, AHEAD };

byte written[ALL]; /* what the program wrote last */
byte on_card[ALL], in_arena[ALL];
byte card_free = CARD, arena_free = ARENA;

bool alive[PROCESSES], stopped[PROCESSES], works[PROCESSES], is_open[PROCESSES];
byte work_left[PROCESSES];
byte aheads = AHEADS, kills = KILLS, stops = STOPS, restarts = RESTARTS, faults = FAULTS, moves = MOVES;

byte daemon_number = 1;
byte connected[PROCESSES]; /* to which daemon; 0: to none */
chan to_agent[PROCESSES] = [1] of { mtype };
chan to_daemon[PROCESSES] = [1] of { byte }; /* extents that are on the card */

#define EXTENT(p, e) ((p) * EXTENTS + (e))
#define is_kept(x) (on_card[x] == written[x] || in_arena[x] == written[x])
#define goes_on(p) (alive[p] && !stopped[p])

/* The process is no more, and the kernel frees what it had on the card. In atomic. */
inline end_process(p)
{
    alive[p] = false;
    is_open[p] = false;
    e = 0;
    do
    :: e < EXTENTS && on_card[EXTENT(p, e)] != NONE -> on_card[EXTENT(p, e)] = NONE; card_free++; e++
    :: e < EXTENTS && on_card[EXTENT(p, e)] == NONE -> e++
    :: else -> break
    od;
    e = 0
}

/* --- The program ----------------------------------------------------------------------------------- */

proctype program(byte p)
{
    byte e, x;
end:
    do
    :: atomic { goes_on(p) && is_open[p] && work_left[p] > 0 ->
           work_left[p]--;
           works[p] = true;
           if
           :: x = EXTENT(p, 0)
           :: EXTENTS > 1 -> x = EXTENT(p, EXTENTS - 1)
           fi;
           assert(on_card[x] == written[x])
       }
       /* The GPU goes on when the process is stopped. */
       atomic {
           if
           :: alive[p] -> assert(on_card[x] == written[x]); written[x]++; on_card[x] = written[x]
           :: else
           fi;
           works[p] = false
       }
    :: atomic { goes_on(p) && is_open[p] && work_left[p] == 0 -> end_process(p) } break
    :: !goes_on(p) -> break
    od
}

/* --- The agent ------------------------------------------------------------------------------------- */

inline copy_out(p, x)
{
    if
    :: atomic { goes_on(p) && arena_free > 0 -> arena_free--; in_arena[x] = NOTHING }
#ifdef BROKEN_RELEASES_EARLY
       atomic { goes_on(p) -> on_card[x] = NONE; card_free++; assert(is_kept(x)) }
#endif
       if
       :: atomic { goes_on(p) -> in_arena[x] = on_card[x] } /* done */
          if
          :: atomic { goes_on(p) -> on_card[x] = NONE; card_free++; assert(is_kept(x)) }
          :: !goes_on(p) -> goto ended
          fi
       :: atomic { goes_on(p) && faults > 0 ->
              faults--; in_arena[x] = NONE; arena_free++; failed = true; assert(is_kept(x)) }
       :: !goes_on(p) -> goto ended
       fi
    :: atomic { goes_on(p) && arena_free == 0 -> failed = true }
    :: !goes_on(p) -> goto ended
    fi
}

inline copy_in(p, x)
{
    if
    :: atomic { goes_on(p) && card_free > 0 -> card_free--; on_card[x] = NOTHING }
#ifdef BROKEN_CHUNK_BACK_EARLY
       atomic { goes_on(p) -> arena_free++; in_arena[x] = NONE; assert(is_kept(x)) }
#endif
       if
       :: atomic { goes_on(p) -> on_card[x] = in_arena[x]; assert(is_kept(x)) } /* done */
          if
          :: atomic { goes_on(p) -> in_arena[x] = NONE; arena_free++; assert(is_kept(x)) }
          :: !goes_on(p) -> goto ended
          fi
       :: atomic { goes_on(p) && faults > 0 ->
              faults--; on_card[x] = NONE; card_free++; failed = true; assert(is_kept(x)) }
       :: !goes_on(p) -> goto ended
       fi
    :: atomic { goes_on(p) && (card_free == 0 || faults > 0) ->
           if
           :: card_free == 0
           :: else -> faults--
           fi;
           failed = true
       }
    :: !goes_on(p) -> goto ended
    fi
}

inline copy_ahead(p, x)
{
    if
    :: atomic { goes_on(p) && card_free > 0 -> card_free--; on_card[x] = NOTHING }
       if
       :: atomic { goes_on(p) -> on_card[x] = in_arena[x]; assert(is_kept(x)) }
       :: atomic { goes_on(p) && faults > 0 -> faults--; on_card[x] = NONE; card_free++; assert(is_kept(x)) }
       :: !goes_on(p) -> goto ended
       fi
    :: atomic { goes_on(p) && card_free == 0 }
    :: !goes_on(p) -> goto ended
    fi
}

#define came_ahead(x) (on_card[x] != NONE && in_arena[x] != NONE)

inline evict_all(p)
{
    failed = false; e = 0;
    do
    :: atomic { e < EXTENTS && !failed && goes_on(p) && came_ahead(EXTENT(p, e)) ->
           on_card[EXTENT(p, e)] = NONE; card_free++; assert(is_kept(EXTENT(p, e))); e++ }
    :: e < EXTENTS && !failed && !goes_on(p) -> goto ended
    :: e < EXTENTS && !failed && on_card[EXTENT(p, e)] != NONE && in_arena[EXTENT(p, e)] == NONE ->
       copy_out(p, EXTENT(p, e)); e++
    :: e < EXTENTS && !failed && on_card[EXTENT(p, e)] == NONE -> e++
    :: else -> break
    od;
    e = 0
}

inline restore_all(p)
{
    failed = false; e = 0;
    do
    :: e < EXTENTS && !failed && on_card[EXTENT(p, e)] == NONE -> copy_in(p, EXTENT(p, e)); e++
    :: atomic { e < EXTENTS && !failed && goes_on(p) && came_ahead(EXTENT(p, e)) ->
#ifndef BROKEN_KEEPS_AHEAD
           in_arena[EXTENT(p, e)] = NONE; arena_free++;
#endif
           e++ }
    :: e < EXTENTS && !failed && !goes_on(p) -> goto ended
    :: e < EXTENTS && !failed && on_card[EXTENT(p, e)] != NONE && in_arena[EXTENT(p, e)] == NONE -> e++
    :: else -> break
    od;
    e = 0
}

/* In atomic. */
inline count_on_card(p)
{
    count = 0; e = 0;
    do
    :: e < EXTENTS && on_card[EXTENT(p, e)] != NONE -> count++; e++
    :: e < EXTENTS && on_card[EXTENT(p, e)] == NONE -> e++
    :: else -> break
    od;
    e = 0
}

/* Open the gate if all is there, and tell the daemon that gave the order, if it still lives. */
inline conclude(p)
{
    if
    :: atomic { goes_on(p) ->
           count_on_card(p);
           is_open[p] = (count == EXTENTS);
#ifdef BROKEN_OPENS_AFTER_FAILURE
           is_open[p] = is_open[p] || failed;
#endif
#ifdef BROKEN_BELIEVES_ALL_OUT
           count = (count == EXTENTS -> EXTENTS : 0);
#endif
           if
           :: connected[p] == daemon_number -> to_daemon[p]!count
           :: else
           fi
       }
    :: !goes_on(p) -> goto ended
    fi
}

proctype agent(byte p)
{
    byte e, count;
    bool failed;
end:
    do
    :: atomic { goes_on(p) && connected[p] == daemon_number && to_agent[p]?[EVICT] ->
           to_agent[p]?EVICT;
           is_open[p] = false
       }
#ifndef BROKEN_DOES_NOT_DRAIN
       if
       :: goes_on(p) && !works[p]
       :: !goes_on(p) -> goto ended
       fi;
#endif
       evict_all(p);
       if
       :: failed -> restore_all(p)
       :: else
       fi;
       conclude(p)
    :: atomic { goes_on(p) && connected[p] == daemon_number && to_agent[p]?[RESTORE] ->
           to_agent[p]?RESTORE;
           count_on_card(p);
           assert(card_free >= EXTENTS - count) /* the order is one that can be carried out */
       }
       restore_all(p);
       conclude(p)
    :: atomic { goes_on(p) && connected[p] == daemon_number && to_agent[p]?[AHEAD] -> to_agent[p]?AHEAD }
       copy_ahead(p, EXTENT(p, 0));
       conclude(p)
    /* The daemon has gone. */
    :: atomic { goes_on(p) && connected[p] != 0 && connected[p] != daemon_number ->
           connected[p] = 0;
           count_on_card(p);
           is_open[p] = (count == EXTENTS);
#ifdef BROKEN_OPENS_WHEN_ALONE
           is_open[p] = true
#endif
       }
    /* Another one has come. */
    :: atomic { goes_on(p) && connected[p] == 0 ->
           connected[p] = daemon_number;
           count_on_card(p);
           to_daemon[p]!count
       }
    :: !goes_on(p) -> break
    od;
ended:
    skip
}

/* --- The daemon ------------------------------------------------------------------------------------ */

/* Extents that are, or may be, on the card: of those that move, all. */
#define may_be_on_card(q) (is_reaped[q] -> 0 : (known[q] > EXTENTS -> EXTENTS : known[q]))
#if PROCESSES > 2
#define room (CARD - may_be_on_card(0) - may_be_on_card(1) - may_be_on_card(2))
#define somebody_is_out(p) (is_out(0) || is_out(1) || is_out(2))
#else
#define room (CARD - may_be_on_card(0) - may_be_on_card(1))
#define somebody_is_out(p) (is_out(0) || is_out(1))
#endif
#define is_out(q) (!is_reaped[q] && known[q] < EXTENTS)
#define chunks_for(p) (arena_free >= known[p]) /* or the eviction could only fail */
#ifdef BROKEN_RESTORES_EARLY
#define has_room(p) true
#else
#define has_room(p) (room >= EXTENTS - known[p])
#endif

#define SERVE(p)                                                                                                      \
    :: atomic { nempty(to_daemon[p]) -> to_daemon[p]?known[p] }                                                       \
    :: d_step { !alive[p] && !is_reaped[p] -> is_reaped[p] = true; free_chunks(p) }                                   \
    /* It leaves for one that is out; one that is partly out too, or both could wait for the other half. */           \
    :: atomic { alive[p] && connected[p] == daemon_number && known[p] > 0 && known[p] <= EXTENTS &&                   \
                (moves > 0 || known[p] < EXTENTS && !has_room(p)) && somebody_is_out(p) && chunks_for(p) ->           \
           if                                                                                                         \
           :: known[p] == EXTENTS -> moves--                                                                          \
           :: else                                                                                                    \
           fi;                                                                                                        \
           known[p] = BUSY;                                                                                           \
           to_agent[p]!EVICT                                                                                          \
       }                                                                                                              \
    :: atomic { alive[p] && connected[p] == daemon_number && known[p] < EXTENTS && has_room(p) ->                     \
           known[p] = BUSY;                                                                                           \
           to_agent[p]!RESTORE                                                                                        \
       }                                                                                                              \
    :: atomic { aheads > 0 && alive[p] && connected[p] == daemon_number && known[p] == 0 && !has_room(p) && room > 0 -> \
           aheads--;                                                                                                  \
           known[p] = BUSY;                                                                                           \
           to_agent[p]!AHEAD                                                                                          \
       }

inline free_chunks(p)
{
    e = 0;
    do
    :: e < EXTENTS && in_arena[EXTENT(p, e)] != NONE ->
#ifndef BROKEN_KEEPS_CHUNKS
       in_arena[EXTENT(p, e)] = NONE;
       arena_free++;
#endif
       e++
    :: e < EXTENTS && in_arena[EXTENT(p, e)] == NONE -> e++
    :: else -> break
    od;
    e = 0
}

/* What it is told of the dead stands in the state file: `is_reaped` outlives it, `known` does not. */
proctype gpusliced()
{
    byte known[PROCESSES];
    bool is_reaped[PROCESSES];
    byte q, e;
    do
    :: q < PROCESSES -> known[q] = UNKNOWN; q++
    :: else -> q = 0; break
    od;
end:
    do
    SERVE(0)
    SERVE(1)
#if PROCESSES > 2
    SERVE(2)
#endif
    :: d_step { restarts > 0 ->
           restarts--;
           daemon_number++;
           q = 0;
           do
           :: q < PROCESSES && nempty(to_daemon[q]) -> to_daemon[q]?_
           :: q < PROCESSES && nempty(to_agent[q]) -> to_agent[q]?_
           :: q < PROCESSES && empty(to_daemon[q]) && empty(to_agent[q]) ->
#ifdef BROKEN_BELIEVES_AWAY
              known[q] = 0;
#else
              known[q] = UNKNOWN;
#endif
              q++
           :: q == PROCESSES -> break
           od;
           q = 0
       }
    od
}

/* --- What befalls processes, and the end ----------------------------------------------------------- */

#define BEFALL(p)                                                                                                     \
    :: atomic { kills > 0 && alive[p] -> kills--; end_process(p) }                                                    \
    :: atomic { stops > 0 && goes_on(p) -> stops--; stopped[p] = true }

/* Nothing can happen any more. One that is stopped may keep others out. */
inline check_rest(p)
{
    if
    :: alive[p] -> assert(STOPS > 0 && (stopped[p] || stops == 0))
    :: else
    fi
}

init
{
    byte p, e;
    atomic {
        do
        :: p < ALL ->
           written[p] = 1;
           in_arena[p] = NONE;
           on_card[p] = NONE;
           if
           :: card_free > 0 && (CARD - card_free) / EXTENTS == p / EXTENTS && CARD >= (p / EXTENTS + 1) * EXTENTS ->
              on_card[p] = 1; card_free--
           :: else -> in_arena[p] = 1; arena_free--
           fi;
           p++
        :: else -> break
        od;
        p = 0;
        do
        :: p < PROCESSES ->
           alive[p] = true;
           work_left[p] = WORK;
           is_open[p] = on_card[EXTENT(p, EXTENTS - 1)] != NONE;
           run program(p);
           run agent(p);
           p++
        :: else -> p = 0; break
        od;
        run gpusliced()
    }
    do
    BEFALL(0)
    BEFALL(1)
#if PROCESSES > 2
    BEFALL(2)
#endif
    :: timeout ->
       check_rest(0);
       check_rest(1);
#if PROCESSES > 2
       check_rest(2);
#endif
       if
       :: STOPS == 0 -> assert(card_free == CARD && arena_free == ARENA)
       :: else
       fi;
       break
    od
}

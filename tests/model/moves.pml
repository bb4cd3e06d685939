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
 * With SPARES, chunks are a process's own: the daemon gives it what it lacks before it has it leave, the process keeps them when it
 * has come back, and gives those that hold no copy back at any moment (SPARES times in all), telling of it. The daemon keeps account
 * of what it gave by what it is told.
 *
 * With STEPS beside that, a process is told to leave as soon as it has a chunk more than its copies take, if it may have all that
 * it needs: it takes out what it has chunks for, and is told again when it was sent the next one.
 *
 * At any step, a process may be killed (KILLS) or stopped for good (STOPS), the daemon may die and another one begin
 * (RESTARTS), and a copy or a request for memory may fail (FAULTS).
 *
 * Checked: a program finds in each extent what it wrote last. That content exists, on the card or in an arena, after
 * every step. A restore is ordered only into room that is there. All together never have more chunks than ARENA, but under a daemon
 * that has not heard of all that were there before it. When everything has come to rest, whoever is not
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
 *   RESTORES_EARLY       the next one is restored after the last one has told that it is out
 *   GIVES_BACK_COPIES    a chunk is given back only if nothing that is away, or came ahead, has its copy there
 *   FORGETS_SENT         of a process that tells it has fewer chunks, those that are on their way to it still count */

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
#ifndef SPARES
#define SPARES 0
#endif
#ifndef STEPS
#define STEPS 0
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
#define NEWS 253     /* it tells of its chunks alone */

mtype = { EVICT, RESTORE, AHEAD, CHUNK };

byte written[ALL]; /* what the program wrote last */
byte on_card[ALL], in_arena[ALL];
byte card_free = CARD, arena_free = ARENA;

bool alive[PROCESSES], stopped[PROCESSES], works[PROCESSES], is_open[PROCESSES];
byte work_left[PROCESSES];
byte aheads = AHEADS, spares = SPARES, kills = KILLS, stops = STOPS, restarts = RESTARTS, faults = FAULTS, moves = MOVES;

byte daemon_number = 1;
byte connected[PROCESSES]; /* to which daemon; 0: to none */
#if SPARES > 0
chan to_agent[PROCESSES] = [EXTENTS + 1] of { mtype };
chan to_daemon[PROCESSES] = [2] of { byte, byte }; /* extents that are on the card; chunks that it has */
byte empty_chunks[PROCESSES]; /* of its own */
#define places(p) empty_chunks[p]
#define tell(p, k) to_daemon[p]!k, has_chunks(p)
#if EXTENTS > 1
#define has_chunks(p) (empty_chunks[p] + (in_arena[EXTENT(p, 0)] != NONE) + (in_arena[EXTENT(p, 1)] != NONE))
#else
#define has_chunks(p) (empty_chunks[p] + (in_arena[p] != NONE))
#endif
#else
chan to_agent[PROCESSES] = [1] of { mtype };
chan to_daemon[PROCESSES] = [1] of { byte }; /* extents that are on the card */
#define places(p) arena_free /* of chunks that nobody has */
#define tell(p, k) to_daemon[p]!k
#endif
#define may_tell(p) nfull(to_daemon[p])

#define EXTENT(p, e) ((p) * EXTENTS + (e))
#define is_kept(x) (on_card[x] == written[x] || in_arena[x] == written[x])
#define goes_on(p) (alive[p] && !stopped[p])

/* Chunks that were sent and will not be taken; with them goes what else was sent. In atomic. */
inline lose_orders(p)
{
    do
    :: to_agent[p]?[CHUNK] -> to_agent[p]?CHUNK; arena_free++
    :: nempty(to_agent[p]) && !to_agent[p]?[CHUNK] -> to_agent[p]?_
    :: empty(to_agent[p]) -> break
    od
}

/* The process is no more, and the kernel frees what it had on the card, and chunks that are its own. In atomic. */
inline end_process(p)
{
#if SPARES > 0
    lose_orders(p);
    arena_free = arena_free + has_chunks(p);
    empty_chunks[p] = 0;
    e = 0;
    do
    :: e < EXTENTS -> in_arena[EXTENT(p, e)] = NONE; e++
    :: else -> break
    od;
#endif
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
    :: atomic { goes_on(p) && places(p) > 0 -> places(p)--; in_arena[x] = NOTHING }
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
              faults--; in_arena[x] = NONE; places(p)++; failed = true; assert(is_kept(x)) }
       :: !goes_on(p) -> goto ended
       fi
    :: atomic { goes_on(p) && places(p) == 0 ->
#if STEPS > 0
           lacks = true
#else
           failed = true
#endif
       }
    :: !goes_on(p) -> goto ended
    fi
}

inline copy_in(p, x)
{
    if
    :: atomic { goes_on(p) && card_free > 0 -> card_free--; on_card[x] = NOTHING }
#ifdef BROKEN_CHUNK_BACK_EARLY
       atomic { goes_on(p) -> places(p)++; in_arena[x] = NONE; assert(is_kept(x)) }
#endif
       if
       :: atomic { goes_on(p) -> on_card[x] = in_arena[x]; assert(is_kept(x)) } /* done */
          if
          :: atomic { goes_on(p) -> in_arena[x] = NONE; places(p)++; assert(is_kept(x)) }
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
    failed = false; lacks = false; e = 0;
    do
    :: atomic { e < EXTENTS && !failed && !lacks && goes_on(p) && came_ahead(EXTENT(p, e)) ->
           on_card[EXTENT(p, e)] = NONE; card_free++; assert(is_kept(EXTENT(p, e))); e++ }
    :: e < EXTENTS && !failed && !lacks && !goes_on(p) -> goto ended
    :: e < EXTENTS && !failed && !lacks && on_card[EXTENT(p, e)] != NONE && in_arena[EXTENT(p, e)] == NONE ->
       copy_out(p, EXTENT(p, e)); e++
    :: e < EXTENTS && !failed && !lacks && on_card[EXTENT(p, e)] == NONE -> e++
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
           in_arena[EXTENT(p, e)] = NONE; places(p)++;
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
    :: atomic { goes_on(p) && may_tell(p) ->
           count_on_card(p);
           is_open[p] = (count == EXTENTS);
#ifdef BROKEN_OPENS_AFTER_FAILURE
           is_open[p] = is_open[p] || failed;
#endif
#ifdef BROKEN_BELIEVES_ALL_OUT
           count = (count == EXTENTS -> EXTENTS : 0);
#endif
           if
           :: connected[p] == daemon_number -> tell(p, count)
           :: else
           fi
       }
    :: !goes_on(p) -> goto ended
    fi
}

proctype agent(byte p)
{
    byte e, count;
    bool failed, lacks;
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
    :: atomic { goes_on(p) && connected[p] == 0 && may_tell(p) ->
           connected[p] = daemon_number;
           count_on_card(p);
           tell(p, count)
       }
#if SPARES > 0
    :: atomic { goes_on(p) && connected[p] == daemon_number && to_agent[p]?[CHUNK] && may_tell(p) ->
           to_agent[p]?CHUNK;
           empty_chunks[p]++;
           tell(p, NEWS)
       }
    :: atomic { goes_on(p) && connected[p] == daemon_number && spares > 0 && empty_chunks[p] > 0 && may_tell(p) ->
           spares--;
           empty_chunks[p]--;
           arena_free++;
           tell(p, NEWS)
       }
#ifdef BROKEN_GIVES_BACK_COPIES
    :: atomic { goes_on(p) && connected[p] == daemon_number && spares > 0 && in_arena[EXTENT(p, 0)] != NONE && may_tell(p) ->
           spares--;
           in_arena[EXTENT(p, 0)] = NONE;
           arena_free++;
           tell(p, NEWS)
       }
#endif
#endif
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
#if SPARES > 0
#if STEPS > 0
#define chunks_for(p) (given[p] >= EXTENTS || (given[p] > EXTENTS - known[p] && all_given - given[p] + EXTENTS <= ARENA))
#define may_have_chunk(p) (is_to_leave(p) || known[p] == BUSY)
#else
#define chunks_for(p) (given[p] >= EXTENTS)
#define may_have_chunk(p) is_to_leave(p)
#endif
#if PROCESSES > 2
#define all_given (given[0] + given[1] + given[2])
#else
#define all_given (given[0] + given[1])
#endif
#else
#define chunks_for(p) (arena_free >= known[p]) /* or the eviction could only fail */
#endif
#define is_to_leave(p) (known[p] > 0 && known[p] <= EXTENTS && (moves > 0 || known[p] < EXTENTS && !has_room(p)) && somebody_is_out(p))
#ifdef BROKEN_RESTORES_EARLY
#define has_room(p) true
#else
#define has_room(p) (room >= EXTENTS - known[p])
#endif

#if SPARES > 0
/* What it has told of counts, and what was sent since. A chunk is made only if there is memory for it. */
#define HEAR(p)                                                                                                       \
    :: d_step { nempty(to_daemon[p]) ->                                                                               \
           to_daemon[p]?q, has;                                                                                       \
           known[p] = (q == NEWS -> known[p] : q);                                                                    \
           given[p] = account(p);                                                                                     \
           told[p] = has;                                                                                             \
           given[p] = (is_reaped[p] -> 0 : given[p]);                                                                 \
           q = 0; has = 0                                                                                             \
       }                                                                                                              \
    :: atomic { alive[p] && connected[p] == daemon_number && may_have_chunk(p) && given[p] < EXTENTS &&              \
                all_given < ARENA && nfull(to_agent[p]) ->                                                            \
           assert(arena_free > 0 || daemon_number > 1);                                                               \
           if                                                                                                         \
           :: arena_free > 0 -> arena_free--; given[p]++; to_agent[p]!CHUNK                                           \
           :: else                                                                                                    \
           fi                                                                                                         \
       }
#ifdef BROKEN_FORGETS_SENT
#define account(p) has
#else
#define account(p) (has > given[p] -> has : (has < told[p] -> given[p] - (told[p] - has) : given[p]))
#endif
#else
#define HEAR(p)                                                                                                       \
    :: atomic { nempty(to_daemon[p]) -> to_daemon[p]?known[p] }
#endif

#define SERVE(p)                                                                                                      \
    HEAR(p)                                                                                                           \
    :: d_step { !alive[p] && !is_reaped[p] -> is_reaped[p] = true; free_chunks(p) }                                   \
    /* It leaves for one that is out; one that is partly out too, or both could wait for the other half. */           \
    :: atomic { alive[p] && connected[p] == daemon_number && is_to_leave(p) && chunks_for(p) ->                       \
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
#if SPARES > 0
    given[p] = 0; /* the kernel has freed them */
#endif
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
#if SPARES > 0
    byte given[PROCESSES], told[PROCESSES]; /* chunks */
    byte has;
#endif
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
#if SPARES > 0
           :: q < PROCESSES && nempty(to_daemon[q]) -> to_daemon[q]?_, _
#else
           :: q < PROCESSES && nempty(to_daemon[q]) -> to_daemon[q]?_
#endif
           :: q < PROCESSES && nempty(to_agent[q]) -> lose_orders(q)
           :: q < PROCESSES && empty(to_daemon[q]) && empty(to_agent[q]) ->
#if SPARES > 0
              given[q] = 0; told[q] = 0;
#endif
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

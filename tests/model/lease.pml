/* The hand-over of a lease between two sessions: src/daemon/schedule/arbiter.c and the agents, over src/wire/wire.h.
 *
 * Session 1 has one process, session 0 all others. A process has WORK pieces to submit and then exits; at any
 * step it may be killed (KILLS in all), be stopped and perhaps go on (STOPS), fail to drain (FAILURES), fall
 * idle with work left (IDLES). The daemon may die and come back (RESTARTS), upon which gates are open until
 * the new one has been heard. It may be silent for so long that an agent hangs up, opens its gate and comes again
 * (HANGS). A process that closes its gate may tell that no thread submits any more (CLOSES): once all of its session
 * have, the next session begins before they have drained. A thread inside may have code to load first (LOADS), which
 * takes long: its process tells nevertheless, and its one call comes later. A session may be a guest: its gates are
 * open beside the holder of a turn and beside other guests (GUESTS: how often a session becomes one); a turn becomes a
 * guest's lease and the other way round with gates open. A guest gives way to a session that is measured (MEASURES: turns
 * beside which nobody's gate may be open, and of its processes' one at a time: it ends for one that waits), and one that holds a lease may be told to hold still (STILLS), and to go on.
 * While a process of a session that closes does not drain, another that has may take a step, of one piece (STEPS). Times
 * are left out: a turn ends whenever somebody waits, the next one begins at any moment after the last CLOSED, and the
 * daemon may stop waiting for a process's answer at any moment. Nor is there a message for bursts: it holds still, and goes
 * on, whenever the daemon likes.
 *
 * Everything is used up some day, so that every execution ends. To be shown:
 *   - two processes of different sessions never both have an open gate, a thread inside of it or work in
 *     flight, but one that did not drain, was given up on, has not answered a new daemon yet, or has nothing
 *     but work in flight, or a thread that loads code for one call, and has told so, or takes a step, and but guests; beside a session that is measured there is none,
 *     nor beside one another of its processes (assertions in `watch`);
 *   - who holds still lets nothing pass its gate, nor who took a step, and goes on some day (assertions in `pass`, end states);
 *   - nobody waits for ever: an execution ends with all processes gone, or stopped for good (end states);
 *   - a socket holds a few messages at most, also of a process that does not read (assertion in `tell`).
 *
 * For three processes there would be too much to search: UNRAISED leaves out that a holder is told who waits,
 * which matters to idle ones, PATIENT that an answer is given up on, which matters to stopped ones.
 * BROKEN_... take one rule out. */
#ifndef PROCESSES
#define PROCESSES 2
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
#ifndef FAILURES
#define FAILURES 0
#endif
#ifndef IDLES
#define IDLES 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef HANGS
#define HANGS 0
#endif
#ifndef CLOSES
#define CLOSES 0
#endif
#ifndef GUESTS
#define GUESTS 0
#endif
#ifndef MEASURES
#define MEASURES 0
#endif
#ifndef STILLS
#define STILLS 0
#endif
#ifndef LOADS
#define LOADS 0
#endif
#ifndef STEPS
#define STEPS 0
#endif

#define MESSAGES 6
#define NUMBERS 3 /* a process's leases are numbered 1 to this, and on with 1: more than are in flight */
#define SESSION(p) ((p) == PROCESSES - 1)

mtype = { WANT, GRANT, STILL, STEP, REVOKE, RETURNED, DRAINED, IDLE, UNDRAINED, NOTHING };
mtype = { CLOSED, OPEN, CLOSING, OVERDUE }; /* enum gate_state; the first is a message, too */
mtype = { NONE, HELD, GUEST, LOOSE };       /* enum arbiter_lease */

chan down[PROCESSES] = [MESSAGES] of { mtype, byte };
chan up[PROCESSES] = [MESSAGES] of { mtype, byte, mtype };

/* The processes. */
bool dead[PROCESSES], stopped[PROCESSES], open[PROCESSES], in_flight[PROCESSES], connected[PROCESSES];
bool inside[PROCESSES]; /* a thread has passed the gate and not submitted yet */
bool loads[PROCESSES];  /* it loads code first */
bool stepping[PROCESSES]; /* until it answers */
#if HANGS > 0
byte hangs = HANGS;
bool hung_up[PROCESSES]; /* until the daemon sees it */
#define HAS_HUNG_UP(p) hung_up[p]
#else
#define HAS_HUNG_UP(p) false
#endif
/* Until it answers: it has told that nobody is inside, or who loads. Until the gate opens, or closes, again: it was
 * opened undrained, and the daemon has not heard of it yet. */
bool told[PROCESSES], undrained[PROCESSES];
byte work[PROCESSES];
byte kills = KILLS, stops = STOPS, failures = FAILURES, idles = IDLES, restarts = RESTARTS;
byte closes = CLOSES, guests = GUESTS, measures = MEASURES, stills = STILLS, loading = LOADS, steps = STEPS;

/* The daemon. */
mtype gate[PROCESSES] = CLOSED;
bool wants[PROCESSES], leaves[PROCESSES]; /* the latter: it has told so since it was revoked */
byte number[PROCESSES];
mtype lease[2] = NONE;
bool closing[2], raised[2], measured[2], stilled[2];
byte x, y;

inline tell(channel, type, n)
{
    assert(nfull(channel));
    channel!type(n);
}

inline say(type, n, outcome)
{
    assert(nfull(up[p]));
    up[p]!type(n, outcome);
}

#define USES(p) (!dead[p] && (open[p] || inside[p] || in_flight[p]))
#define HAS_TOLD(p) (told[p] && !open[p] && (!inside[p] || loads[p]))
#define IS_EXCUSED(p)                                                                                        \
    (!connected[p] || HAS_HUNG_UP(p) || gate[p] == OVERDUE || lease[SESSION(p)] == LOOSE || undrained[p] || \
     HAS_TOLD(p) || stepping[p])
#define BESIDE ((lease[0] == GUEST || lease[1] == GUEST) && !measured[0] && !measured[1])

/* After each step that opens a gate or submits. */
inline watch()
{
    x = 0;
    do
    :: x < PROCESSES - 1 ->
        assert(!(USES(x) && USES(PROCESSES - 1)) || BESIDE || IS_EXCUSED(x) || IS_EXCUSED(PROCESSES - 1));
        x++
    :: else -> break
    od;
#if PROCESSES > 2
    assert(!(USES(0) && USES(1)) || !measured[0] || lease[0] != HELD || IS_EXCUSED(0) || IS_EXCUSED(1));
#endif
    x = 0
}

/* --- The daemon ------------------------------------------------------------------------------------ */

inline open_gate(q)
{
    number[q] = (number[q] % NUMBERS) + 1;
    gate[q] = OPEN;
    wants[q] = false;
    if
    :: stilled[SESSION(q)] -> tell(down[q], STILL, number[q])
    :: else -> tell(down[q], GRANT, number[q])
    fi
}

/* The lease ends once no gate of the session is open or closing. */
inline end_if_returned(s)
{
    x = 0;
    do
    :: x < PROCESSES && !(SESSION(x) == s && (gate[x] == OPEN || gate[x] == CLOSING)) -> x++
    :: else -> break
    od;
    if
    :: x == PROCESSES -> lease[s] = NONE; closing[s] = false; raised[s] = false; measured[s] = false; stilled[s] = false
    :: else
    fi;
    x = 0
}

inline begin_closing(s)
{
    closing[s] = true;
    y = 0;
    do
    :: y < PROCESSES ->
        if
        :: SESSION(y) == s && gate[y] == OPEN ->
            gate[y] = CLOSING;
#ifndef BROKEN_KEEPS_CLOSED
            leaves[y] = false;
#endif
            tell(down[y], REVOKE, number[y])
        :: else
        fi;
        y++
    :: else -> break
    od;
    y = 0;
#ifdef BROKEN_GRANTS_EARLY
    lease[s] = NONE; closing[s] = false
#else
    end_if_returned(s)
#endif
}

/* All its gates open again at once: that of the process that did not drain is open already. */
inline become_loose(s)
{
    lease[s] = LOOSE;
    closing[s] = false;
    raised[s] = false;
    measured[s] = false;
    stilled[s] = false;
    y = 0;
    do
    :: y < PROCESSES ->
        if
        :: SESSION(y) == s && connected[y] && gate[y] == CLOSED -> open_gate(y)
        :: SESSION(y) == s && connected[y] && gate[y] != CLOSED -> wants[y] = true
        :: else
        fi;
        y++
    :: else -> break
    od;
    y = 0
}

#ifdef BROKEN_STALE_RETURN
#define IS_STALE(q, n) (gate[q] == CLOSED)
#else
#define IS_STALE(q, n) (gate[q] == CLOSED || n != number[q])
#endif

inline on_returned(q, n, outcome)
{
    if
    :: IS_STALE(q, n)
    :: else ->
        gate[q] = CLOSED;
        if
#ifndef BROKEN_IGNORES_UNDRAINED
        :: outcome == UNDRAINED -> become_loose(SESSION(q))
#endif
        :: outcome == DRAINED && lease[SESSION(q)] == LOOSE && !closing[SESSION(q)] -> wants[q] = true
        :: else
        fi;
        if
        :: outcome == UNDRAINED -> undrained[q] = false
        :: else
        fi;
        if
        :: lease[SESSION(q)] == LOOSE && !closing[SESSION(q)] && wants[q]
        :: else -> end_if_returned(SESSION(q))
        fi
    fi
}

#define WAITS(q) (connected[q] && gate[q] == CLOSED && wants[q])
/* Whether all that have not answered have told that they submit no more. */
#define STAYS(q) (gate[q] == CLOSING && !leaves[q])
#if PROCESSES == 2
#define ALL_LEAVE(s) (!STAYS(s))
#elif defined(BROKEN_CLOSED_BY_ONE)
#define ALL_LEAVE(s) ((s) == 1 && !STAYS(2) || (s) == 0 && (!STAYS(0) || !STAYS(1)))
#else
#define ALL_LEAVE(s) ((s) == 1 && !STAYS(2) || (s) == 0 && !STAYS(0) && !STAYS(1))
#endif
/* No other process of its session has an open gate. */
#if PROCESSES == 2
#define IS_LAST_OPEN(q) true
#else
#define IS_LAST_OPEN(q) ((q) == 2 || gate[1 - (q)] != OPEN)
#endif
/* What is measured is not spoilt by one that begins early. */
#define IS_IN_THE_WAY(s) (lease[s] == HELD && !(closing[s] && ALL_LEAVE(s) && !measured[s]))

#if PROCESSES == 2
#define SESSION_WAITS(s) (lease[s] == NONE && WAITS(s))
#else
#define SESSION_WAITS(s) (lease[s] == NONE && ((s) == 1 && WAITS(2) || (s) == 0 && (WAITS(0) || WAITS(1))))
#endif

/* Of a session that is measured, one process at a time has its gate open. */
#if PROCESSES == 2
#define TAKES_ONE_BY_ONE(q) false
#else
#define IS_USED(q) (gate[q] == OPEN || gate[q] == CLOSING)
#define TAKES_ONE_BY_ONE(q) ((q) < 2 && measured[0] && lease[0] == HELD && IS_USED(1 - (q)))
#endif
#ifdef BROKEN_OPENS_BESIDE_MEASURED
#define MAY_OPEN(q) true
#else
#define MAY_OPEN(q) (!TAKES_ONE_BY_ONE(q))
#endif

#ifdef BROKEN_JOINS_MEASURED
#define MAY_BE_GUEST(s) true
#else
#define MAY_BE_GUEST(s) (!measured[1 - (s)])
#endif
#ifdef BROKEN_FORGETS_COMPANY
#define MAY_TAKE_TURN(s) true
#else
#define MAY_TAKE_TURN(s) (!IS_IN_THE_WAY(1 - (s)))
#endif
#ifdef BROKEN_MEASURES_BESIDE
#define MAY_BE_MEASURED(s) MAY_TAKE_TURN(s)
#elif defined(BROKEN_MEASURES_EARLY)
#define MAY_BE_MEASURED(s) (lease[1 - (s)] == NONE || lease[1 - (s)] == LOOSE || closing[1 - (s)])
#else
#define MAY_BE_MEASURED(s) (lease[1 - (s)] == NONE || lease[1 - (s)] == LOOSE)
#endif

proctype daemon()
{
    byte q, s, n;
    mtype outcome;
end_of_all:
    do
    :: atomic { up[0]?[WANT, _, _] -> q = 0; goto heard }
    :: atomic { up[0]?[RETURNED, _, _] -> q = 0; goto heard }
    :: atomic { up[0]?[CLOSED, _, _] -> q = 0; goto heard }
    :: atomic { up[1]?[WANT, _, _] -> q = 1; goto heard }
    :: atomic { up[1]?[RETURNED, _, _] -> q = 1; goto heard }
    :: atomic { up[1]?[CLOSED, _, _] -> q = 1; goto heard }
#if PROCESSES > 2
    :: atomic { up[2]?[WANT, _, _] -> q = 2; goto heard }
    :: atomic { up[2]?[RETURNED, _, _] -> q = 2; goto heard }
    :: atomic { up[2]?[CLOSED, _, _] -> q = 2; goto heard }
#endif
    :: atomic {
        /* A death is seen by its pidfd, whatever is left in the socket. */
        dead[0] && connected[0] -> q = 0; goto gone }
    :: atomic { dead[1] && connected[1] -> q = 1; goto gone }
#if PROCESSES > 2
    :: atomic { dead[2] && connected[2] -> q = 2; goto gone }
#endif
#if HANGS > 0
    :: atomic { hung_up[0] && connected[0] -> q = 0; goto gone }
    :: atomic { hung_up[1] && connected[1] -> q = 1; goto gone }
#endif
    :: atomic { lease[0] == HELD && !closing[0] && SESSION_WAITS(1) -> begin_closing(0) }
    :: atomic { lease[1] == HELD && !closing[1] && SESSION_WAITS(0) -> begin_closing(1) }
#if PROCESSES > 2 && !defined(BROKEN_FORGETS_ITS_OWN)
    :: atomic { WAITS(0) && !closing[0] && TAKES_ONE_BY_ONE(0) -> begin_closing(0) }
    :: atomic { WAITS(1) && !closing[0] && TAKES_ONE_BY_ONE(1) -> begin_closing(0) }
#endif
    :: atomic { lease[0] == LOOSE && !closing[0] -> begin_closing(0) }
    :: atomic { lease[1] == LOOSE && !closing[1] -> begin_closing(1) }
#ifndef UNRAISED
    /* Told once that others wait. */
    :: atomic { lease[0] == HELD && !closing[0] && SESSION_WAITS(1) && !raised[0] -> s = 0; goto raise }
    :: atomic { lease[1] == HELD && !closing[1] && SESSION_WAITS(0) && !raised[1] -> s = 1; goto raise }
#endif
#if !defined(BROKEN_NO_GRACE) && !defined(PATIENT)
    :: atomic { closing[0] -> s = 0; goto give_up }
    :: atomic { closing[1] -> s = 1; goto give_up }
#endif
    :: atomic { SESSION_WAITS(0) && !IS_IN_THE_WAY(1) -> lease[0] = HELD; raised[0] = false }
    :: atomic { SESSION_WAITS(1) && !IS_IN_THE_WAY(0) -> lease[1] = HELD; raised[1] = false }
    :: atomic { guests > 0 && SESSION_WAITS(0) && MAY_BE_GUEST(0) -> guests--; lease[0] = GUEST; raised[0] = false }
    :: atomic { guests > 0 && SESSION_WAITS(1) && MAY_BE_GUEST(1) -> guests--; lease[1] = GUEST; raised[1] = false }
    :: atomic { guests > 0 && lease[0] == HELD && !closing[0] ->
        guests--; lease[0] = GUEST; raised[0] = false; measured[0] = false }
    :: atomic { guests > 0 && lease[1] == HELD && !closing[1] ->
        guests--; lease[1] = GUEST; raised[1] = false; measured[1] = false }
    :: atomic { lease[0] == GUEST && !closing[0] -> begin_closing(0) }
    :: atomic { lease[1] == GUEST && !closing[1] -> begin_closing(1) }
    :: atomic { lease[0] == GUEST && !closing[0] && MAY_TAKE_TURN(0) && !measured[1] -> lease[0] = HELD; raised[0] = false }
    :: atomic { lease[1] == GUEST && !closing[1] && MAY_TAKE_TURN(1) && !measured[0] -> lease[1] = HELD; raised[1] = false }
    :: atomic { measures > 0 && SESSION_WAITS(0) && MAY_BE_MEASURED(0) ->
        measures--; lease[0] = HELD; raised[0] = false; measured[0] = true }
    :: atomic { measures > 0 && SESSION_WAITS(1) && MAY_BE_MEASURED(1) ->
        measures--; lease[1] = HELD; raised[1] = false; measured[1] = true }
    /* A lease is kept, and nothing submitted under it, for a while. */
    :: atomic { stills > 0 && !stilled[0] && (lease[0] == HELD || lease[0] == GUEST) && !closing[0] ->
        stills--; stilled[0] = true; s = 0; goto hold }
    :: atomic { stills > 0 && !stilled[1] && (lease[1] == HELD || lease[1] == GUEST) && !closing[1] ->
        stills--; stilled[1] = true; s = 1; goto hold }
#ifndef BROKEN_FORGETS_STILL
    :: atomic { stilled[0] && !closing[0] -> stilled[0] = false; s = 0; goto go_on }
    :: atomic { stilled[1] && !closing[1] -> stilled[1] = false; s = 1; goto go_on }
#endif
    :: atomic { WAITS(0) && lease[0] != NONE && !closing[0] && MAY_OPEN(0) -> open_gate(0) }
    :: atomic { WAITS(1) && lease[SESSION(1)] != NONE && !closing[SESSION(1)] && MAY_OPEN(1) -> open_gate(1) }
#if PROCESSES > 2
    :: atomic { WAITS(2) && lease[1] != NONE && !closing[1] -> open_gate(2) }
#endif
    :: atomic { restarts > 0 -> restarts--; goto restart }
#if PROCESSES > 2
    :: atomic { steps > 0 && closing[0] && WAITS(0) && gate[1] == CLOSING -> steps--; q = 0; goto step }
    :: atomic { steps > 0 && closing[0] && WAITS(1) && gate[0] == CLOSING -> steps--; q = 1; goto step }
#endif
    od;

    /* The labels stand inside, behind a first statement, as spin has it: so a jump from one of those above is one step with
     * what follows, and nobody else's comes between. */
    atomic {
        skip;
step:
        number[q] = (number[q] % NUMBERS) + 1;
        gate[q] = CLOSING;
        wants[q] = false;
        leaves[q] = true;
        tell(down[q], STEP, number[q]);
        tell(down[q], REVOKE, number[q]);
        q = 0;
        goto end_of_all
    }

    atomic {
        skip;
heard:
        if
        :: up[q]?WANT(n, outcome) ->
#ifdef BROKEN_LOSES_WANT
            if
            :: gate[q] == CLOSED -> wants[q] = true
#else
            if
            :: gate[q] != OPEN -> wants[q] = true
#endif
            :: else
            fi
        :: up[q]?CLOSED(n, outcome) ->
            if
            :: gate[q] == CLOSING && n == number[q] -> leaves[q] = true
            :: gate[q] == OPEN && n == number[q] && lease[SESSION(q)] == HELD && !closing[SESSION(q)] && IS_LAST_OPEN(q) ->
                gate[q] = CLOSING; leaves[q] = true; closing[SESSION(q)] = true
            :: else
            fi
        :: up[q]?RETURNED(n, outcome) -> on_returned(q, n, outcome)
        fi;
        q = 0; n = 0; outcome = NOTHING;
        goto end_of_all
    }

    atomic {
        skip;
gone:
        connected[q] = false;
#if HANGS > 0
        hung_up[q] = false;
#endif
        gate[q] = CLOSED;
        wants[q] = false;
        do
        :: up[q]?WANT(n, outcome)
        :: up[q]?RETURNED(n, outcome)
        :: up[q]?CLOSED(n, outcome)
        :: empty(up[q]) -> break
        od;
        /* Nobody reads it any more. */
        do
        :: down[q]?_, _
        :: empty(down[q]) -> break
        od;
        number[q] = 0; leaves[q] = false;
        end_if_returned(SESSION(q));
        q = 0; n = 0; outcome = NOTHING;
        goto end_of_all
    }

    atomic {
        skip;
hold:
        y = 0;
        do
        :: y < PROCESSES ->
            if
            :: SESSION(y) == s && gate[y] == OPEN -> tell(down[y], STILL, number[y])
            :: else
            fi;
            y++
        :: else -> break
        od;
        y = 0; s = 0;
        goto end_of_all
    }

    atomic {
        skip;
go_on:
        y = 0;
        do
        :: y < PROCESSES ->
            if
            :: SESSION(y) == s && gate[y] == OPEN -> tell(down[y], GRANT, number[y])
            :: else
            fi;
            y++
        :: else -> break
        od;
        y = 0; s = 0;
        goto end_of_all
    }

    atomic {
        skip;
raise:
        raised[s] = true;
        y = 0;
        do
        :: y < PROCESSES ->
            if
            :: SESSION(y) == s && gate[y] == OPEN && !stilled[s] -> tell(down[y], GRANT, number[y])
            :: SESSION(y) == s && gate[y] == OPEN && stilled[s] -> tell(down[y], STILL, number[y])
            :: else
            fi;
            y++
        :: else -> break
        od;
        y = 0; s = 0;
        goto end_of_all
    }

    atomic {
        skip;
give_up:
        y = 0;
        do
        :: y < PROCESSES ->
            if
            :: SESSION(y) == s && gate[y] == CLOSING -> gate[y] = OVERDUE
            :: else
            fi;
            y++
        :: else -> break
        od;
        y = 0;
        end_if_returned(s);
        s = 0;
        goto end_of_all
    }

    atomic {
        skip;
restart:
        y = 0;
        do
        :: y < PROCESSES ->
            connected[y] = false; gate[y] = CLOSED; wants[y] = false; leaves[y] = false; number[y] = 0;
            do
            :: up[y]?_, _, _
            :: empty(up[y]) -> break
            od;
            y++
        :: else -> break
        od;
        y = 0;
        lease[0] = NONE; lease[1] = NONE;
        closing[0] = false; closing[1] = false;
        raised[0] = false; raised[1] = false;
        measured[0] = false; measured[1] = false;
        stilled[0] = false; stilled[1] = false;
        goto end_of_all
    }
}

/* --- A process ------------------------------------------------------------------------------------- */

/* A call goes through the open gate. */
inline pass()
{
    assert(!still && !stepping[p]);
    work[p]--
}

#define LIVES (!dead[p] && !stopped[p])
#define LISTENS (LIVES && connected[p] && heard_of)

#ifdef BROKEN_VOID_GRANT
#define IS_VOID(n) false
#else
#define IS_VOID(n) (n == lease_number && !open[p] && !still)
#endif

/* It waits out the threads that are inside first, but for those that load. */
#ifdef BROKEN_TELLS_EARLY
#define MAY_TELL true
#else
#define MAY_TELL (!inside[p] || loads[p])
#endif
#ifdef BROKEN_RETURNS_LOADING
#define IS_LEFT (!inside[p] || loads[p])
#else
#define IS_LEFT (!inside[p])
#endif

proctype process(byte p)
{
    byte lease_number, revoked, n;
    bool draining, has_asked, heard_of, still; /* still: it holds a lease, and is not to submit */
    do
    /* It connects, and connects again after the daemon has gone. The first state comes by the daemon. */
    :: atomic { LIVES && !connected[p] && !heard_of ->
        do
        :: down[p]?_, _
        :: empty(down[p]) -> break
        od;
        connected[p] = true; heard_of = true;
#ifdef BROKEN_TRUSTS_NEWCOMERS
        gate[p] = CLOSED;
#else
        gate[p] = OVERDUE;
#endif
        number[p] = 0; wants[p] = false;
        lease_number = 0; has_asked = false; draining = false; still = false;
        tell(down[p], REVOKE, 0) }
    :: atomic { LIVES && !connected[p] && heard_of ->
        heard_of = false; open[p] = true; still = false; told[p] = false; draining = false }
#if HANGS > 0
    :: atomic { LISTENS && hangs > 0 && !open[p] && work[p] > 0 ->
        hangs--; hung_up[p] = true; stepping[p] = false; revoked = 0;
        heard_of = false; open[p] = true; still = false; told[p] = false; draining = false }
#endif
    :: atomic { LISTENS && !draining && down[p]?[GRANT, _] ->
        down[p]?GRANT(n);
        if
        :: IS_VOID(n)
        :: else -> open[p] = true; still = false; told[p] = false; lease_number = n; has_asked = false; watch()
        fi;
        n = 0 }
    :: atomic { LISTENS && !draining && down[p]?[STILL, _] ->
        down[p]?STILL(n);
        if
        :: IS_VOID(n)
#ifdef BROKEN_SUBMITS_STILL
        :: else -> open[p] = true; still = true; told[p] = false; lease_number = n; has_asked = false
#else
        :: else -> open[p] = false; still = true; told[p] = false; lease_number = n; has_asked = false
#endif
        fi;
        n = 0 }
    :: atomic { LISTENS && !draining && down[p]?[STEP, _] ->
        down[p]?STEP(n);
        told[p] = false; lease_number = n; has_asked = false; n = 0;
        if
        :: work[p] > 0 && !in_flight[p] -> work[p]--; in_flight[p] = true; stepping[p] = true; watch()
        :: else
        fi;
#ifdef BROKEN_STEP_OPENS
        open[p] = true
#else
        skip
#endif
        }
    :: atomic { LISTENS && !draining && down[p]?[REVOKE, _] ->
        down[p]?REVOKE(revoked); open[p] = false; still = false; draining = true;
        if
        :: revoked > 0 && revoked == lease_number /* it may cross with what was returned undrained of itself */
        :: else -> undrained[p] = false
        fi }
    :: atomic { LISTENS && draining && !told[p] && closes > 0 && MAY_TELL ->
        closes--; told[p] = true; say(CLOSED, lease_number, NOTHING) }
    :: atomic { LISTENS && draining && IS_LEFT && !in_flight[p] ->
        draining = false; told[p] = false; stepping[p] = false; say(RETURNED, revoked, DRAINED); revoked = 0 }
    :: atomic { LISTENS && draining && in_flight[p] && failures > 0 ->
        failures--; draining = false; stepping[p] = false; open[p] = true; told[p] = false; undrained[p] = true;
        say(RETURNED, revoked, UNDRAINED); revoked = 0 }
    :: atomic { LISTENS && !draining && !open[p] && !still && work[p] > 0 && !has_asked ->
        has_asked = true; say(WANT, 0, NOTHING) }
    :: atomic { LISTENS && open[p] && !inside[p] && !in_flight[p] && idles > 0 && lease_number > 0 ->
        idles--; open[p] = false; has_asked = false; say(RETURNED, lease_number, IDLE) }
    /* It has nothing to do but to load: it leaves of itself. */
    :: atomic { LISTENS && open[p] && loads[p] && !in_flight[p] && closes > 0 && lease_number > 0 ->
        closes--; open[p] = false; draining = true; revoked = lease_number; told[p] = true; has_asked = false;
        say(CLOSED, lease_number, NOTHING) }
#if CLOSES > 0
    :: atomic { LIVES && open[p] && !inside[p] && !in_flight[p] && work[p] > 0 -> pass(); inside[p] = true }
    :: atomic { LIVES && inside[p] && !loads[p] && loading > 0 -> loading--; loads[p] = true }
    :: atomic { LIVES && inside[p] -> inside[p] = false; loads[p] = false; in_flight[p] = true; watch() }
#else
    :: atomic { LIVES && open[p] && !in_flight[p] && work[p] > 0 -> pass(); in_flight[p] = true; watch() }
#endif
    /* The card goes on, whatever the process does. */
    :: atomic { in_flight[p] -> in_flight[p] = false }
    :: atomic { LIVES && work[p] == 0 && !inside[p] && !in_flight[p] && !draining -> dead[p] = true; break }
    :: atomic { !dead[p] && kills > 0 -> kills--; dead[p] = true; inside[p] = false; loads[p] = false; in_flight[p] = false; break }
    :: atomic { LIVES && stops > 0 -> stops--; stopped[p] = true }
    :: atomic { stopped[p] -> stopped[p] = false }
    :: atomic { stopped[p] && !in_flight[p] -> goto end_stopped }
    od;
    goto end_dead;
end_stopped:
    /* For good. */
    false;
end_dead:
    atomic {
        /* What does not matter any more is the same, however it came about: so there is less to search. */
        open[p] = false; told[p] = false; undrained[p] = false; stepping[p] = false; work[p] = 0;
        lease_number = 0; revoked = 0; draining = false; has_asked = false; heard_of = false; still = false
    }
}

init
{
    byte p;
    atomic {
        do
        :: p < PROCESSES -> work[p] = WORK; run process(p); p++
        :: else -> break
        od;
        run daemon()
    }
}

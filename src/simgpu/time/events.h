/* events.h - for execution.c: events that wait to be told when they happened. */
#pragma once

/* Under execution_lock(): our work has come further; settle those events whose marks are reached, while the
 * timeline still knows the time. */
void events_settle(unsigned gpu);

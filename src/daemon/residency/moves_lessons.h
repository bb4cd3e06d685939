/* moves_lessons.h - what refusals teach of a card: it has less room than the ledgers say.
 *
 * lesson  a driver refused memory although there seemed to be room: how many bytes must be taken that nobody here knows of.
 *         It is believed for a second; for twice as long each time that it is taught again soon after */
#pragma once

#include <stdint.h>

struct moves_lesson {
    uint64_t bytes, until_usec, life_usec;
};

/* The card had no room although `seemed_left` bytes seemed to be left beside what was asked for; below 0: there seemed
 * to be none, so this teaches nothing. */
void moves_lesson_learn(struct moves_lesson *lesson, int64_t seemed_left, uint64_t now_usec);

/* How much of the card is taken that nobody here knows of. */
uint64_t moves_lesson_bytes(const struct moves_lesson *lesson, uint64_t now_usec);

#include "daemon/residency/moves_lessons.h"

/* A figure that is wrong for a moment only, as while the driver cleans up after a process, is forgotten before a session
 * is refused for it. One that stays wrong costs few vain attempts. */
#define LIFE_LEAST_USEC UINT64_C(1000000)
#define LIFE_MOST_USEC UINT64_C(16000000)

void moves_lesson_learn(struct moves_lesson *lesson, int64_t seemed_left, uint64_t now_usec)
{
    if (seemed_left < 0)
        return;
    uint64_t bytes = (uint64_t)seemed_left + 1, before = moves_lesson_bytes(lesson, now_usec),
             life = LIFE_LEAST_USEC;
    if (lesson->life_usec && now_usec < lesson->until_usec + lesson->life_usec)
        life = now_usec < lesson->until_usec ? lesson->life_usec : 2 * lesson->life_usec;
    lesson->bytes = bytes > before ? bytes : before;
    lesson->life_usec = life < LIFE_MOST_USEC ? life : LIFE_MOST_USEC;
    lesson->until_usec = now_usec + lesson->life_usec;
}

uint64_t moves_lesson_bytes(const struct moves_lesson *lesson, uint64_t now_usec)
{
    return now_usec < lesson->until_usec ? lesson->bytes : 0;
}

/* shared_file.h - what this process has of the shared file; for shared.c and attach.c, which writes it. */
#pragma once

#include "simgpu/device/shared.h"

struct shared_file {
    atomic_bool is_attached;
    int fd;
    struct shared_view view;
    char key[NAME_MAX]; /* the file's name: what UUIDs derive from */
    char folder[PATH_MAX - 64];
    bool is_folder_given; /* in a container, with other users in it: whoever gave it vouches for the files */
    uint64_t pid_namespace;
    uid_t owner;     /* whose file it is */
    bool is_for_all; /* FAKECUDA_OWNER was given: other users' programs share it */
};
extern struct shared_file shared_file;

/* The file's locks: byte 0 says that somebody initialises, byte 1 + N is slot N. */
#define SHARED_LOCK_SLOT(slot) ((off_t)(slot) + 1)
/* Forked children keep the device open, as with a card's device file: this lock is of an open file, which
 * children inherit and exec closes. */
#define SHARED_LOCK_OPEN(slot) ((off_t)(slot) + 1 + (off_t)DEVICE_SLOTS)
#define SHARED_LOCK_ALL (2 * (off_t)DEVICE_SLOTS + 1)

bool shared_lock_take(int fd, short type, off_t start, off_t length);
bool shared_lock_is_held(int fd, off_t start);

/* What a slot's `owner` is for a process of this process's pid namespace. */
uint64_t shared_owner_word(pid_t pid);

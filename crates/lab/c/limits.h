/* Calls of a library's functions as programs make them that are short of something: on a stack that was painted before,
 * on a thread that was cancelled, and with each allocation failing in turn. For programs that test a library which they
 * load or are linked with; its calls of malloc(3) come here.
 *
 * Whoever includes it defines HAS_FAILED(result), by which a function tells of a failure.
 */
#ifndef LIMITS_H
#define LIMITS_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_ROOM (512 << 10)

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d: %s: %s\n", __LINE__, where, #what);                                                     \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

#define P(pointer) ((word)(const void *)(pointer))

/* Calls a function with up to ten words; more than it takes do no harm. */
#define CALL(...) CALL_OF(__VA_ARGS__)
#define CALL_OF(what, ...) call(what, (word[12]){__VA_ARGS__})

typedef void function(void);
typedef uintptr_t word;
typedef word called(word, word, word, word, word, word, word, word, word, word);

static enum { STACK, CANCEL, MEMORY } mode;

/* What is done now, for whoever reads of a failure. */
static char where[200];
static const char *subject;
static unsigned long calls;

/* ---- Allocations: one may fail. ---- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

/* Only those of the library are counted, and only one of them fails. */
static _Thread_local int is_inside;
static long allocations, failing = -1, blocks;
static int has_failed;

static int fails(void)
{
    if (!is_inside || allocations++ != failing)
        return 0;
    has_failed = 1;
    return 1;
}

static void *counted(void *block)
{
    if (block && is_inside)
        blocks++;
    return block;
}

void *malloc(size_t size)
{
    return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *block, size_t size)
{
    if (fails())
        return NULL;
    return block ? __libc_realloc(block, size) : counted(__libc_realloc(NULL, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : counted(__libc_memalign(alignment, size));
}

int posix_memalign(void **place, size_t alignment, size_t size)
{
    void *block = fails() ? NULL : counted(__libc_memalign(alignment, size));
    if (!block)
        return 12;
    *place = block;
    return 0;
}

void free(void *block)
{
    if (block && is_inside)
        blocks--;
    __libc_free(block);
}

/* ---- Stack. ---- */

static unsigned char *stack;
static ucontext_t caller, callee;
static struct {
    const word *call;
    word result;
    unsigned char *below;
} now;

static word do_call(const word *call)
{
    called *function = (called *)call[0];
    return function(call[1], call[2], call[3], call[4], call[5], call[6], call[7], call[8], call[9], call[10]);
}

static void on_other_stack(void)
{
    unsigned char here;

    now.below = &here;
    now.result = do_call(now.call);
}

/* The most that calls of a name took. */
static struct {
    char what[64];
    long most;
    char where[200];
} takers[100];

static void note_use(const char *what, long used)
{
    size_t at = 0;

    while (takers[at].what[0] && strcmp(takers[at].what, what))
        at++;
    CHECK(at + 1 < sizeof takers / sizeof *takers);
    snprintf(takers[at].what, sizeof takers[at].what, "%s", what);
    if (used > takers[at].most) {
        takers[at].most = used;
        snprintf(takers[at].where, sizeof takers[at].where, "%s", where);
    }
}

/* Does a call on a stack that was painted, and looks how far down the paint is gone. */
static word on_painted_stack(const char *what, const word *call)
{
    const word paint = 0xa5a5a5a5a5a5a5a5u;
    word *words, *at;

    if (!stack) {
        stack = mmap(NULL, STACK_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(stack != MAP_FAILED);
        memset(stack, 0xa5, STACK_ROOM);
    }
    words = (word *)(void *)stack;
    now.call = call;
    CHECK(getcontext(&callee) == 0);
    callee.uc_stack.ss_sp = stack, callee.uc_stack.ss_size = STACK_ROOM, callee.uc_link = &caller;
    makecontext(&callee, on_other_stack, 0);
    CHECK(swapcontext(&caller, &callee) == 0);
    for (at = words; *at == paint; at++)
        ;
    note_use(what, now.below - (unsigned char *)at);
    memset(at, 0xa5, (size_t)(stack + STACK_ROOM - (unsigned char *)at));
    return now.result;
}

/* Prints what was taken. Whether no function took more than so much, or `greedy` more than its own limit. */
static int stack_within(long most, const char *greedy, long most_of_greedy)
{
    int is_within = 1;

    for (size_t i = 0; takers[i].what[0]; i++) {
        long limit = strcmp(takers[i].what, greedy) ? most : most_of_greedy;
        printf("%6ld bytes of stack: %s\n", takers[i].most, takers[i].what);
        if (takers[i].most > limit) {
            printf("more than %ld: %s\n", limit, takers[i].where);
            is_within = 0;
        }
    }
    return is_within;
}

/* ---- Calls. ---- */

static word call(const char *what, const word *call)
{
    word result;

    snprintf(where, sizeof where, "%s: %s", subject, what);
    calls++;
    if (mode == STACK)
        return on_painted_stack(what, call);
    has_failed = 0;
    is_inside = 1;
    result = do_call(call);
    is_inside = 0;
    if (has_failed && HAS_FAILED(result)) {
        /* It changed nothing: once there is memory, the same call does what it should have done. */
        has_failed = 0;
        is_inside = 1;
        result = do_call(call);
        is_inside = 0;
    }
    return result;
}

/* Does all calls of `work` on a thread that somebody has cancelled. None may act on it. */
static void *on_cancelled_thread(void *work)
{
    int old;

    pthread_cancel(pthread_self());
    (*(void (**)(void))work)();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    return &calls;
}

static void cancelled(void (*work)(void))
{
    pthread_t thread;
    void *result = NULL;

    CHECK(pthread_create(&thread, NULL, on_cancelled_thread, &work) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == &calls);
    printf("%lu calls were not cancelled\n", calls);
}

/* Does `work`, once for each of its allocations, which fails. What came out must be the same each time (`digest`), and
 * nothing may be lost. */
static uint64_t digest;

static void short_of_memory(const char *name, void (*work)(void))
{
    uint64_t right;
    long count, before;

    /* What is set up once for a process is not given back. */
    work();
    before = blocks;
    failing = -1, allocations = 0, digest = 0;
    work();
    right = digest, count = allocations;
    CHECK(blocks == before && count > 0);
    for (long at = 0; at < count; at++) {
        failing = at, allocations = 0, digest = 0;
        work();
        failing = -1;
        snprintf(where, sizeof where, "%s: %s, allocation %ld of %ld", subject, name, at, count);
        CHECK(allocations > at && digest == right && blocks == before);
    }
    printf("%s: %s: each of %ld allocations failed\n", subject, name, count);
}

static void add(const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        digest = (digest ^ bytes[i]) * 0x100000001b3u;
}

static void fill(unsigned char *bytes, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(seed = seed * 1103515245u + 12345u, seed >> 16);
}

#endif

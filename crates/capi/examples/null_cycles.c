/*
 * What the job manager itself costs: cycles of the time-stamp counter for a job with neither cipher
 * nor MAC, from asking for it to getting it back.
 */

#include <convoy_crypto.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#define NOW() __rdtsc()
#else
#include <time.h>
#define NOW() ((unsigned long long)clock())
#endif

enum { JOBS = 4096, ROUNDS = 1001 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    static uint8_t packet[64];
    static double figures[ROUNDS];
    convoy_mgr *mgr;
    int round, i, returned = 0;
    if (convoy_mgr_new(CONVOY_TIER_AUTO, &mgr) != CONVOY_OK) {
        return 1;
    }
    for (round = 0; round < ROUNDS; round++) {
        unsigned long long start = NOW();
        for (i = 0; i < JOBS; i++) {
            convoy_job *job = convoy_get_next_job(mgr);
            job->src = packet;
            job->dst = packet;
            job->cipher_mode = CONVOY_CIPHER_NULL;
            job->cipher_len = sizeof packet;
            job->user_data = packet;
            job = convoy_submit_job(mgr);
            while (job != NULL) {
                returned += job->user_data == packet && job->status == CONVOY_STATUS_COMPLETED;
                job = convoy_get_completed_job(mgr);
            }
        }
        while (convoy_flush_job(mgr) != NULL) {
            returned++;
        }
        figures[round] = (double)(NOW() - start) / JOBS;
    }
    convoy_mgr_free(mgr);
    qsort(figures, ROUNDS, sizeof figures[0], compare);
    printf("null cipher, null hash: %.1f cycles a job (median of %d rounds), %.1f (least)\n",
           figures[ROUNDS / 2], ROUNDS, figures[0]);
    return returned == JOBS * ROUNDS ? 0 : 1;
}

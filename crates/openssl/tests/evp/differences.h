/* The list of what Convoy's provider does otherwise than OpenSSL's own (`differences.md`, named by the environment variable
 * DIFFERENCES). Tests that lead both through the same calls leave out what it names.
 */
#ifndef DIFFERENCES_H
#define DIFFERENCES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    char name[40];
    unsigned long met;
} differences[64];
static size_t difference_count;

static void read_differences(void)
{
    const char *path = getenv("DIFFERENCES");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[400];

    if (!file) {
        puts("DIFFERENCES names no file");
        exit(1);
    }
    while (fgets(line, sizeof line, file) && difference_count < sizeof differences / sizeof *differences)
        if (sscanf(line, "* `%39[^`]`:", differences[difference_count].name) == 1)
            difference_count++;
    fclose(file);
}

/* Whether the two may differ in this; what the list does not name is a defect of the test. Always true, so that it can
 * stand in a condition. */
static int differs(const char *name)
{
    for (size_t i = 0; i < difference_count; i++)
        if (!strcmp(differences[i].name, name)) {
            differences[i].met++;
            return 1;
        }
    printf("the list of differences does not name %s\n", name);
    exit(1);
}

/* How many differences of this cipher the list names that nothing was left out for. */
static unsigned unmet_differences(const char *cipher)
{
    unsigned unmet = 0;

    for (size_t i = 0; i < difference_count; i++)
        if (!strncmp(differences[i].name, cipher, strlen(cipher)) && !differences[i].met) {
            printf("%s was not met: the list is longer than it must be\n", differences[i].name);
            unmet++;
        }
    return unmet;
}

#endif

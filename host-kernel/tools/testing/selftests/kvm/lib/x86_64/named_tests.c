// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_util.h"
#include "named_tests.h"

void print_test_names(const struct named_test *tests, int n)
{
	int i;

	for (i = 0; i < n; i++)
		printf(" %s", tests[i].name);
	printf("\n");
}

void run_tests(const struct named_test *tests, int n, const char *only)
{
	int i, ran = 0;

	for (i = 0; i < n; i++) {
		if (only && strcmp(only, tests[i].name))
			continue;
		pr_info("%s\n", tests[i].name);
		tests[i].run();
		ran++;
	}
	TEST_ASSERT(ran, "there is no test %s", only);
}

const char *named_argument(int argc, char *argv[],
			   const struct named_test *tests, int n)
{
	const char *only = argc > 1 ? argv[1] : NULL;

	setbuf(stdout, NULL);
	if (only && only[0] == '-') {
		printf("usage: %s [test], one of:", argv[0]);
		print_test_names(tests, n);
		exit(strcmp(only, "-h") != 0);
	}
	return only;
}

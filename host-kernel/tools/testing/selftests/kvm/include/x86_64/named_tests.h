/* SPDX-License-Identifier: GPL-2.0-only */
/* A program of several tests, of which the command line may choose one. */
#ifndef SELFTEST_KVM_NAMED_TESTS_H
#define SELFTEST_KVM_NAMED_TESTS_H

struct named_test {
	const char *name;
	void (*run)(void);
};

/* Prints the names of the @n @tests on one line, each after a space. */
void print_test_names(const struct named_test *tests, int n);

/*
 * Runs the test that is called @only, or all @n @tests in order if @only is
 * NULL.  Prints each name before its test runs.  Fails if there is no test
 * @only.
 */
void run_tests(const struct named_test *tests, int n, const char *only);

/*
 * Makes stdout unbuffered.  Returns the first argument, which names the test to
 * run, or NULL if there is none.  If the first argument is an option, prints
 * the usage with the names of the @n @tests and ends the program.
 */
const char *named_argument(int argc, char *argv[],
			   const struct named_test *tests, int n);

#endif /* SELFTEST_KVM_NAMED_TESTS_H */

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes dirty tracking as a hostile userspace would: threads throw random
 * operations at a few VMs, at the memory that these are made of, and at what they
 * have mapped of KVM's.  The kernel has to stay whole: it says itself whether it
 * has (KASAN, lockdep, its warnings).  And no page that a guest has written may
 * be lost.
 *
 * The program runs episodes, each in a process of its own.  What an operation
 * does follows from the seed, the episode, its thread and its index alone, so
 * that an episode that fails can run again with fewer and fewer operations.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "kvm_util.h"
#include "test_util.h"
#include "dirty_tracking_fuzz/ops_dirty.h"
#include "dirty_tracking_fuzz/ops_host.h"
#include "dirty_tracking_fuzz/ops_vm.h"
#include "dirty_tracking_fuzz/witness.h"

#define MAX_THREADS	4
#define OPS		60	/* of each thread */
#define EPISODE_LIMIT	180	/* seconds: emulated CPUs may be slow */

struct op {
	const char *name;
	void (*run)(struct op_call *call);
	int weight;
	bool whole;	/* no fault may be injected */
};

/* What comes first, in thread 0 alone, for each VM. */
static const struct op beginning[] = {
	{ "create-vm", op_create_vm, .whole = true },
	{ "enable-early", op_enable_early, .whole = true },
	{ "add-slot", op_add_slot },
	{ "add-slot", op_add_slot },
	{ "add-slot", op_add_slot },
	{ "add-slot", op_add_slot },
	{ "create-vcpu", op_create_vcpu, .whole = true },
	{ "create-vcpu", op_create_vcpu, .whole = true },
	{ "start-witness", op_start_witness, .whole = true },
};

static const struct op ops[] = {
	{ "run", op_run, 18 },
	{ "set-slot", op_set_slot, 8 },
	{ "change-slot", op_change_slot, 8 },
	{ "get-log", op_get_log, 8 },
	{ "clear-log", op_clear_log, 12 },
	{ "protect-all", op_protect_all, 3 },
	{ "range", op_range, 12 },
	{ "get-bitmap", op_get_bitmap, 6 },
	{ "map-bitmap", op_map_bitmap, 4 },
	{ "drop-bitmap", op_drop_bitmap, 3 },
	{ "abuse-bitmap", op_abuse_bitmap, 1 },
	{ "pass-bitmap", op_pass_bitmap, 1 },
	{ "scribble", op_scribble, 4 },
	{ "write-ring", op_write_ring, 2 },
	{ "reset-rings", op_reset_rings, 2 },
	{ "enable-cap", op_enable_cap, 2 },
	{ "create-vcpu", op_create_vcpu, 2 },
	{ "end-vm", op_end_vm, 1 },
	{ "set-clock", op_set_clock, 1 },
	{ "advise", op_advise, 4 },
	{ "mprotect", op_mprotect, 1 },
	{ "remap", op_remap, 1 },
	{ "write-memory", op_write_memory, 1 },
	{ "fork", op_fork, 1 },
	{ "set-parameter", op_set_parameter, 1 },
	{ "check-extension", op_check_extension, 1 },
	{ "disturb-witness", op_disturb_witness, 2 },
	{ "copy-witness", op_copy_witness, 4, .whole = true },
	{ "check-witness", op_check_witness, 1, .whole = true },
};

static uint64_t seed = 1;
static uint64_t episode;
static uint64_t times = 1;
static const char *keep;	/* which operations to do, NULL for all */
static __thread timer_t alarm_timer;
static pthread_barrier_t all_are_there;

static const struct op *any_op(struct rng *rng)
{
	int i, sum = 0, left;

	for (i = 0; i < ARRAY_SIZE(ops); i++)
		sum += ops[i].weight;
	left = rng_below(rng, sum);
	for (i = 0; left >= ops[i].weight; i++)
		left -= ops[i].weight;
	return &ops[i];
}

/* Which operation this is, and its random numbers. */
static const struct op *find_op(struct op_call *call)
{
	call->rng = rng_of(seed, episode, call->thread, call->index);
	if (!call->thread) {
		call->vm = call->index / ARRAY_SIZE(beginning);
		return &beginning[call->index % ARRAY_SIZE(beginning)];
	}
	call->vm = rng_once_in(&call->rng, 4);
	return any_op(&call->rng);
}

static int nr_ops(int thread)
{
	return thread ? OPS : NR_VMS * ARRAY_SIZE(beginning);
}

/* One in three episodes has a single thread: what fails there, always does. */
static int nr_threads(void)
{
	struct rng rng = rng_of(seed, episode, ~0ULL, 0);

	return rng_once_in(&rng, 3) ? 1 : 1 + rng_below(&rng, MAX_THREADS);
}

static bool is_kept(int thread, int index)
{
	char word[32];
	const char *at;
	int length;

	if (!keep)
		return true;
	length = snprintf(word, sizeof(word), "%d.%d", thread, index);
	for (at = keep; (at = strstr(at, word)); at += length)
		if ((at == keep || at[-1] == ',') &&
		    (!at[length] || at[length] == ','))
			return true;
	return false;
}

static void alarm_in(uint64_t microseconds)
{
	struct itimerspec once = {
		.it_value = {
			.tv_sec = microseconds / 1000000,
			.tv_nsec = microseconds % 1000000 * 1000,
		},
		/* It may be too early, and so be missed by a vCPU. */
		.it_interval = { .tv_nsec = microseconds ? 200000000 : 0 },
	};

	timer_settime(alarm_timer, 0, &once, NULL);
}

static void do_op(const struct op *op, struct op_call *call)
{
	uint64_t alarm = 1000000, nth = 0;

	if (rng_once_in(&call->rng, 6))
		alarm = 1 + rng_below(&call->rng, 300);
	if (!op->whole && rng_once_in(&call->rng, 12))
		nth = 1 + rng_below(&call->rng, 40);
	if (verbose)
		printf("%d.%d %s%s\n", call->thread, call->index, op->name,
		       nth ? ", something fails" : "");
	alarm_in(alarm);
	if (nth)
		fail_begin(nth);
	op->run(call);
	if (nth)
		fail_end();
	alarm_in(0);
}

static void do_ops(int thread)
{
	struct op_call call = { .thread = thread };
	const struct op *op;

	for (; call.index < nr_ops(thread); call.index++) {
		op = find_op(&call);
		if (is_kept(thread, call.index))
			do_op(op, &call);
	}
}

static void on_signal(int signo)
{
}

static void begin_thread(int thread)
{
	struct sigevent event = {
		.sigev_notify = SIGEV_THREAD_ID,
		.sigev_signo = ALARM_SIGNAL,
		._sigev_un._tid = gettid(),
	};

	timer_create(CLOCK_MONOTONIC, &event, &alarm_timer);
	fail_open();
	map_buffer(thread);
}

static void *thread_main(void *arg)
{
	int thread = (long)arg;

	begin_thread(thread);
	pthread_barrier_wait(&all_are_there);
	do_ops(thread);
	return NULL;
}

static void handle_signals(void)
{
	struct sigaction interrupted = { .sa_handler = on_signal };
	struct sigaction missing = {
		.sa_handler = on_not_there, .sa_flags = SA_NODEFER,
	};

	sigaction(ALARM_SIGNAL, &interrupted, NULL);
	sigaction(SIGSEGV, &missing, NULL);
	sigaction(SIGBUS, &missing, NULL);
}

/* All of an episode.  What it leaves open goes with the process. */
static void run_episode(void)
{
	struct op_call last = { .rng = rng_of(seed, episode, ~0ULL, 1) };
	pthread_t threads[MAX_THREADS];
	int n = nr_threads(), i;

	handle_signals();
	make_world();
	make_witness();
	begin_thread(0);
	do_ops(0);
	pthread_barrier_init(&all_are_there, NULL, n);
	for (i = 0; i < n; i++)
		TEST_ASSERT(!pthread_create(&threads[i], NULL, thread_main,
					    (void *)(i + 1L)), "no thread");
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	op_check_witness(&last);
}

/* How the episode's process ended, NULL if well. */
static const char *wait_for(pid_t pid)
{
	static char how[64];
	int status, waited;

	for (waited = 0; waitpid(pid, &status, WNOHANG) != pid; waited++) {
		if (waited == EPISODE_LIMIT * 1000) {
			kill(pid, SIGKILL);
			return "it does not end";
		}
		usleep(1000);
	}
	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "signal %d ended it", WTERMSIG(status));
	else
		snprintf(how, sizeof(how), "its status is %d", WEXITSTATUS(status));
	return status ? how : NULL;
}

static void fork_episode(void)
{
	const char *problem;
	pid_t pid;

	pid = fork();
	TEST_ASSERT(pid >= 0, "no process: %s", strerror(errno));
	if (!pid) {
		run_episode();
		exit(0);
	}
	problem = wait_for(pid);
	if (problem) {
		printf("FAILED: seed %lu episode %lu: %s\n", seed, episode,
		       problem);
		exit(1);
	}
}

static void next_episode(void)
{
	uint64_t i;

	printf("seed %lu episode %lu: %d threads\n", seed, episode, nr_threads());
	for (i = 0; i < times; i++)
		fork_episode();
	episode++;
}

static void list_ops(void)
{
	struct op_call call = { };

	for (; call.thread <= nr_threads(); call.thread++)
		for (call.index = 0; call.index < nr_ops(call.thread); call.index++)
			printf("%d.%d %s\n", call.thread, call.index,
			       find_op(&call)->name);
}

static void help(const char *name)
{
	printf("usage: %s [-s seed] [-e first episode] [-n episodes | -t seconds]\n"
	       "       [-k operation,...] [-r times] [-l] [-v]\n"
	       " -n  how many episodes; 1 by default\n"
	       " -r  each of them so often; 1 by default\n"
	       " -k  only these operations, as -l lists them: thread.index\n"
	       " -l  list the operations of the first episode, and do nothing\n"
	       " -v  say what is done\n", name);
	exit(KSFT_FAIL);
}

static uint64_t number(const char *name, const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 0);

	if (!*text || *end)
		help(name);
	return value;
}

int main(int argc, char *argv[])
{
	uint64_t n = 1, seconds = 0, done = 0;
	time_t begun = time(NULL);
	bool list = false;
	int opt;

	setlinebuf(stdout);
	while ((opt = getopt(argc, argv, "s:e:n:t:k:r:lv")) != -1) {
		switch (opt) {
		case 's':
			seed = number(argv[0], optarg);
			break;
		case 'e':
			episode = number(argv[0], optarg);
			break;
		case 'n':
			n = number(argv[0], optarg);
			break;
		case 't':
			seconds = number(argv[0], optarg);
			break;
		case 'k':
			keep = optarg;
			break;
		case 'r':
			times = number(argv[0], optarg);
			break;
		case 'l':
			list = true;
			break;
		case 'v':
			verbose = true;
			break;
		default:
			help(argv[0]);
		}
	}
	if (list) {
		list_ops();
		return 0;
	}
	set_up_host();
	count_witness_changes();
	for (; seconds ? time(NULL) < begun + seconds : done < n; done++)
		next_episode();
	printf("%lu episodes, %lu pages of the witness changed, all is well\n",
	       done, *witness_changes);
	return 0;
}

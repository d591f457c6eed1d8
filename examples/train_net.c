/* Defines a small net for images, trains it with the options of the command line, and saves it:
 *
 *   train_net train-images-idx3-ubyte --test t10k-images-idx3-ubyte --epochs 3
 *   train_net train-images-idx3-ubyte --strategy ps --workers 2 --mode sync --run digits
 *
 * The program accepts every option of `muster train`. It writes a normal run directory: `muster eval` and
 * `muster predict` accept it, and --run digits --resume continues it. Ctrl-C ends the training with a
 * checkpoint. */
#include <muster/muster.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char net_lines[] = "conv1: conv 8 kernel=5 pad=2\n"
                                "relu\n"
                                "maxpool kernel=2\n"
                                "conv2: conv 16 kernel=5\n"
                                "relu\n"
                                "maxpool kernel=2\n"
                                "fc1: linear 64\n"
                                "relu\n"
                                "fc2: linear classes\n";

static muster_trainer *running; /* for the signal handler only */

static void on_signal(int number)
{
    (void)number;
    muster_trainer_stop(running);
}

static int on_progress(void *arg, const muster_progress *p)
{
    (void)arg;
    switch (p->event) {
    case MUSTER_EVENT_STEPS:
        printf("step %6llu  epoch %llu  loss %.4f  %.0f rows/s\n", (unsigned long long)p->step,
               (unsigned long long)p->epoch + 1, p->loss, p->rows_per_s);
        break;
    case MUSTER_EVENT_EVALUATED:
        printf("step %6llu  %s: loss %.4f, accuracy %.4f\n", (unsigned long long)p->step, p->set,
               p->result.loss, p->result.accuracy);
        break;
    case MUSTER_EVENT_SAVED:
        printf("step %6llu  saved in %s\n", (unsigned long long)p->step, p->path);
        break;
    }
    fflush(stdout);
    return 0; /* nonzero stops the training */
}

static muster_status read_options(muster_options *options, muster_net *net, int argc, char **argv)
{
    muster_status st = muster_options_parse(options, argc, argv);
    if (st == MUSTER_OK)
        st = muster_options_set_net(options, net);
    return st;
}

static muster_status train(const muster_options *options)
{
    muster_trainer *trainer = NULL;
    muster_summary summary;
    muster_status st = muster_trainer_new(options, &trainer);
    if (st != MUSTER_OK)
        return st;
    running = trainer;
    signal(SIGINT, on_signal);
    st = muster_trainer_run(trainer, 100, on_progress, NULL, &summary);
    signal(SIGINT, SIG_DFL);
    if (st == MUSTER_OK && summary.has_run)
        printf("%s at step %llu; the run is in %s\n", summary.end, (unsigned long long)summary.step,
               summary.run);
    muster_trainer_free(trainer);
    return st;
}

int main(int argc, char **argv)
{
    muster_net *net = NULL;
    muster_options *options = NULL;
    muster_status st = muster_net_new(&net);
    if (st == MUSTER_OK)
        st = muster_net_add(net, net_lines);
    if (st == MUSTER_OK)
        st = muster_options_new(&options);
    if (st == MUSTER_OK && argc > 1 && strcmp(argv[1], "--help") == 0) {
        printf("train_net FILE... [options]\n%s", muster_options_help(options));
    } else {
        if (st == MUSTER_OK)
            st = read_options(options, net, argc - 1, argv + 1);
        if (st == MUSTER_OK)
            st = train(options);
    }
    if (st != MUSTER_OK)
        fprintf(stderr, "train_net: %s\n", muster_error_text());
    muster_options_free(options);
    muster_net_free(net);
    return st == MUSTER_OK ? 0 : 1;
}

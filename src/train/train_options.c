/* The options of training and evaluation; meaning in trainer.h. */
#include "train/trainer.h"

#define FIELD(name) offsetof(mst_train_options, name)
const mst_option mst_train_option_table[] = {
    {"test", MST_OPTION_LIST, FIELD(test), NULL, 0, 0, NULL, "FILES",
     "Test set: files, evaluated on the way and at the end; separated by commas (\\, for a comma in a name), "
     "or the flag repeated."},
    {"valid", MST_OPTION_TEXT, FIELD(valid), NULL, 0, 0, NULL, "FRACTION|FILE",
     "Validation set: a file, or the fraction of the training rows to hold out (chosen by --valid-seed)."},
    {"epochs", MST_OPTION_INT, FIELD(epochs), "1", 0, 1e9, NULL, "N",
     "Stop after N passes over the data; 0: no limit."},
    {"steps-per-epoch", MST_OPTION_INT, FIELD(steps_per_epoch), "0", 0, 1e9, NULL, "N",
     "An epoch of --epochs, --eval-every and --checkpoint-every is N steps, however many rows the data has, "
     "which repeat as often as it takes; 0: a pass over the data."},
    {"steps", MST_OPTION_INT, FIELD(steps), "0", 0, 1e15, NULL, "N",
     "Stop after N steps, in as many epochs as it takes unless --epochs is given too; 0: no limit."},
    {"rows", MST_OPTION_INT, FIELD(rows), "0", 0, 1e15, NULL, "N",
     "Stop after N rows, in as many epochs as it takes unless --epochs is given too; 0: no limit."},
    {"seconds", MST_OPTION_REAL, FIELD(seconds), "0", 0, 1e9, NULL, "S",
     "Stop after S seconds of training, evaluations not counted, in as many epochs as it takes unless "
     "--epochs is given "
     "too; 0: no limit."},
    {"until", MST_OPTION_TEXT, FIELD(until), NULL, 0, 0, NULL, "CONDITION",
     "Stop when an evaluation meets it, e.g. 'test_loss<=0.35'; metrics are train_loss and loss, accuracy, "
     "auc, top5 with "
     "test_ or valid_ before them. never: removes the condition of a resumed run. In as many epochs as "
     "it takes unless another limit is given."},
    {"patience", MST_OPTION_INT, FIELD(patience), "0", 0, 1e6, NULL, "N",
     "Stop after N evaluations without a better loss on --valid; the best weights stay in RUN/best, which "
     "eval and predict use. 0: off."},
    {"eval-every", MST_OPTION_TEXT, FIELD(eval_every), "1 epoch", 0, 0, NULL, "N steps|rows|s|epochs",
     "How often to evaluate; never: only at the end."},
    {"eval-rows", MST_OPTION_INT, FIELD(eval_rows), "0", 0, 1e15, NULL, "N",
     "Evaluate on the first N rows of a set; 0: all."},
    {"eval-batch", MST_OPTION_INT, FIELD(eval_batch), "1024", 1, 1e7, NULL, "N",
     "Rows scored at a time in evaluation."},
    {"strict-features", MST_OPTION_FLAG, FIELD(strict_features), "false", 0, 0, NULL, NULL,
     "Refuse --test and --valid rows with features that the model does not have, which count as 0 "
     "otherwise."},
    {"seed", MST_OPTION_INT, FIELD(seed), "1", 0, 9e18, NULL, "N",
     "Seed of everything random: order of rows, initial weights, hold-out."},
    {"valid-seed", MST_OPTION_INT, FIELD(valid_seed), "-1", -1, 9e18, NULL, "N",
     "Seed of the rows that --valid FRACTION holds out, so that runs with different --seed share one "
     "hold-out; -1: --seed."},
    {"shuffle-rows", MST_OPTION_INT, FIELD(shuffle_rows), "65536", 0, 1e9, NULL, "N",
     "Rows are shuffled within windows of about N, after whole chunks where the data allows random access; "
     "0: file order, which is also the default for pipes."},
    {"prefetch", MST_OPTION_INT, FIELD(prefetch), "0", 0, 256, NULL, "N",
     "Threads that parse ahead (text, TFRecord); 0: as many as --threads."},
    {"cache", MST_OPTION_FLAG, FIELD(cache), "false", 0, 0, NULL, NULL,
     "Make a binary cache of the data once and read that, now and in later runs."},
    {"cache-folder", MST_OPTION_TEXT, FIELD(cache_folder), NULL, 0, 0, NULL, "FOLDER",
     "Where caches go; beside the data when not given."},
    {"run", MST_OPTION_TEXT, FIELD(run), NULL, 0, 0, NULL, "FOLDER",
     "The run's directory; runs/MODEL-N with the next free N when not given."},
    {"group", MST_OPTION_TEXT, FIELD(group), NULL, 0, 0, NULL, "NAME",
     "Runs of one group are repeats: TensorBoard's HParams tab shows them as one, with the mean of their "
     "figures."},
    {"resume", MST_OPTION_FLAG, FIELD(resume), "false", 0, 0, NULL, NULL,
     "Continue the run in --run from its newest checkpoint, with its options unless given anew. Files with "
     "other "
     "contents than those trained on last are new data: --epochs and the other limits count anew for them."},
    {"resume-data", MST_OPTION_CHOICE, FIELD(resume_data), "auto", 0, 0, "auto|same|new", NULL,
     "With --resume: whether the files are those trained on last (same), in whose middle the run continues, "
     "or "
     "new; auto: by their contents, and a pipe is new."},
    {"fail-if-done", MST_OPTION_FLAG, FIELD(fail_if_done), "false", 0, 0, NULL, NULL,
     "Exit with code 4 instead of a warning when a resumed run has reached its limits already."},
    {"overwrite", MST_OPTION_FLAG, FIELD(overwrite), "false", 0, 0, NULL, NULL, "Replace the run in --run."},
    {"save", MST_OPTION_FLAG, FIELD(save), "true", 0, 0, NULL, NULL,
     "Write checkpoints; --no-save: none at all."},
    {"checkpoint-every", MST_OPTION_TEXT, FIELD(checkpoint_every), "never", 0, 0, NULL,
     "N steps|rows|s|epochs", "How often to write a checkpoint, besides the one at the end."},
    {"keep", MST_OPTION_INT, FIELD(keep), "2", 0, 1e6, NULL, "N", "How many checkpoints stay; 0: all."},
    {"init-from", MST_OPTION_TEXT, FIELD(init_from), NULL, 0, 0, NULL, "CHECKPOINT",
     "Start from the weights of a checkpoint or run (after --patience its best), with fresh optimizer state "
     "and "
     "step 0."},
    {"force", MST_OPTION_FLAG, FIELD(force), "false", 0, 0, NULL, NULL,
     "Continue with rows of another format or hash than the model, or the training data, has."},
    {"isa", MST_OPTION_TEXT, FIELD(isa), "auto", 0, 0, NULL, "NAME",
     "Instruction set of the kernels: auto, portable, avx2 or avx512; results repeat bit for bit within "
     "one."},
    {"observe", MST_OPTION_FLAG, FIELD(observe), "true", 0, 0, NULL, NULL,
     "Write resources, times by phase, marks and TensorBoard's event files into the run's directory; "
     "--no-observe: none of them."},
    {"resources-every", MST_OPTION_REAL, FIELD(resources_every), "1", 0, 3600, NULL, "S",
     "Seconds between lines of resources.csv and spans.csv; 0: neither."},
    {"trace", MST_OPTION_FLAG, FIELD(trace), "false", 0, 0, NULL, NULL,
     "Write what every thread did when to trace.json, for Perfetto or chrome://tracing."},
    {"trace-steps", MST_OPTION_TEXT, FIELD(trace_steps), NULL, 0, 0, NULL, "A:B",
     "Trace steps A to B only, instead of all; ps async and ssp: of each worker's own count."},
    {0},
};

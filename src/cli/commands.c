/* The registry of commands; cli.h. */
#include "cli/cli.h"

const mst_command *const mst_commands[] = {
    &mst_cmd_train,      &mst_cmd_launch, &mst_cmd_jobs,   &mst_cmd_stop, &mst_cmd_eval,  &mst_cmd_predict,
    &mst_cmd_serve,      &mst_cmd_model,  &mst_cmd_matmul, &mst_cmd_data, &mst_cmd_sweep, &mst_cmd_study,
    &mst_cmd_plan,       &mst_cmd_report, &mst_cmd_dash,   &mst_cmd_top,  &mst_cmd_list,  &mst_cmd_doctor,
    &mst_cmd_completion, &mst_cmd_man,    &mst_cmd_trace,  NULL,
};

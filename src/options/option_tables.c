/* The tables of a training; contract in option_tables.h. */
#include "options/option_tables.h"

#include "data/augment.h"
#include "model/model.h"
#include "optim/optim.h"
#include "options/output_options.h"
#include "options/process_options.h"
#include "options/train_options.h"
#include "strategy/strategy.h"

const mst_option *const mst_train_tables[] = {
    mst_train_option_table,    mst_model_option_table,   mst_optim_option_table,
    mst_strategy_option_table, mst_data_option_table,    mst_augment_option_table,
    mst_output_option_table,   mst_process_option_table, NULL,
};

const mst_option *mst_train_option(const char *name)
{
    const mst_option *row = NULL;
    for (size_t i = 0; row == NULL && mst_train_tables[i] != NULL; i++)
        row = mst_option_row(mst_train_tables[i], name);
    return row;
}

bool mst_train_option_is(const char *name, unsigned fact)
{
    const mst_option *row = mst_train_option(name);
    return row != NULL && (row->facts & fact) != 0;
}

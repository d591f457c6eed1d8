/* The tables of a training; contract in option_tables.h. */
#include "options/option_tables.h"

#include "base/alloc.h"
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

json_t *mst_train_compared(const json_t *options, bool grouped)
{
    const unsigned left_out = MST_OPTION_NOT_COMPARED | (grouped ? MST_OPTION_OF_REPEAT : 0);
    const char *title, *name;
    json_t *values, *value, *flat = json_object();
    json_object_foreach((json_t *)options, title, values)
    {
        json_object_foreach(values, name, value)
        {
            if (mst_train_option_is(name, left_out))
                continue;
            char *text = json_is_array(value) ? mst_option_text(value) : NULL;
            if (text != NULL)
                json_object_set_new(flat, name, json_string(text));
            else
                json_object_set(flat, name, value);
            mst_free(text);
        }
    }
    return flat;
}

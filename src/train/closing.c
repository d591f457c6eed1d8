/* Contract in closing.h. */
#include "train/closing.h"

#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "report/verdict.h"

void mst_train_closing(const char *run)
{
    mst_error error;
    if (run == NULL || run[0] == '\0' || !mst_path_is_folder(run))
        return;
    mst_error_save(&error, MST_EIO);
    if (mst_verdict_write(run) != MST_OK)
        mst_warn("%s; the run has no verdict", mst_error_text());
    (void)mst_error_restore(&error);
}

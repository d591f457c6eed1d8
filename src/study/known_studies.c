/* Studies that come with muster. Their texts are the files of studies/, which are installed, too, to start
 * one's own from: known_study_rows.h is made of them when CMake configures (CMakeLists.txt). */
#include "study/study.h"

const mst_known_study mst_known_studies[] = {
#include "known_study_rows.h"
    {0},
};

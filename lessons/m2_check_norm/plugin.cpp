// Makes your norm a plug-in, which the norma command loads: norma compare --norms mine,group --plugin my_norm.so
#include "exercise.h"

NORMA_PLUGIN {
  register_my_norm();
}

// Makes your design a plug-in, which the norma command loads: norma compare --norms my_design,group --plugin
// my_design.so
#include <norma/norma.h>

#include "layer.h"

NORMA_PLUGIN {
  register_my_design();
}

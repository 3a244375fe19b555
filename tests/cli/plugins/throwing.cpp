#include "base/error.h"
#include "nn/plugin.h"

NORMA_PLUGIN {
  norma::fail("my norm", "not today");
}

#include "nn/plugin.h"

NORMA_PLUGIN {}

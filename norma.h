#pragma once

// All of Norma's public headers, for programs that use it: #include <norma/norma.h>

#include "core/allocator.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/factory.h"
#include "core/gradcheck.h"
#include "core/memory_format.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/tape.h"
#include "core/tensor.h"
#include "core/version.h"

#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/norm/spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/pool.h"
#include "ops/random/dropout.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include "nn/module.h"
#include "nn/norm_factory.h"
#include "nn/optimizer.h"
#include "nn/schedule.h"

#include "models/registry.h"

#include "data/dataset.h"
#include "data/loader.h"
#include "data/safetensors.h"
#include "data/transform.h"

#include "train/checkpoint.h"

#pragma once

// What a program needs to compare norms and to judge one: #include <norma/lab/lab.h>

#include "lab/compare/comparison.h"
#include "lab/judge/check_norm.h"
#include "lab/report/report.h"
#include "lab/telemetry/recorder.h"

#pragma once

#include "session/trainer.h"

#include <string>

namespace norma::cli {

/// `norma train --dry-run`: measures a few steps, and returns the plan and the cost of the run as text for people.
/// `recipe` is its recipe as lines of a file for --config.
std::string dry_run_text(train::Trainer& trainer, const std::string& recipe);

}  // namespace norma::cli

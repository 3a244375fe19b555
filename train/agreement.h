#pragma once

#include "base/error.h"
#include "parallel/process_group.h"

#include <functional>
#include <string>

namespace norma::train {

// How the processes of a group decide as one. All of them call each of these functions at the same place. In a group of
// one process they do what the process would do without them.

/// An error that all processes throw at the same place, with the same text: they may go on with other work together.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// The text of the first process.
std::string text_of_first(parallel::ProcessGroup& group, const std::string& text);
/// The text of the first process that has one; "" if none has.
std::string first_text(parallel::ProcessGroup& group, const std::string& text);

/// `value` of the first process.
bool of_first(parallel::ProcessGroup& group, bool value);
/// Call it in a handler of what may have been thrown by one process alone: rethrows it in a group of several, unless it
/// is an AgreedError.
void rethrow_unless_agreed(const parallel::ProcessGroup& group);

/// Runs `work`, in which no process waits for another. Where it throws in some, all throw AgreedError with the text of
/// the first of these. In a group of one, exceptions pass as they are.
void do_together(parallel::ProcessGroup& group, const std::function<void()>& work);

/// Runs `work` in the first process while the others wait, for as long as it takes: ProcessGroupOptions::timeout counts
/// only where the first process is stopped. Where one of them is asked to stop, all are (StopFlag). What
/// `work` throws, all throw, as Error with the same text.
void do_in_first(parallel::ProcessGroup& group, const std::function<void()>& work);

}  // namespace norma::train

#pragma once

#include "support.h"

#include <string>

namespace norma::test {

/// The text of the Error that f() throws; "no error" when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace norma::test

#pragma once

namespace norma::emulated {

/// While one of these lives, the memory of the device cuda-emulated may be touched, by all threads; otherwise a read or
/// a write ends the program with a signal, as it would on memory of a GPU.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};

}  // namespace norma::emulated

#include <norma/norma.h>

#include <cstdio>

int main() {
  const norma::Tensor x = norma::ones({2}).set_requires_grad();
  norma::sum(norma::mul(x, x)).backward();
  const auto gradient = x.grad().to_vector<float>();
  std::printf("norma %s: %g %g\n", std::string(norma::version()).c_str(), gradient[0], gradient[1]);
}

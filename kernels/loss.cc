#include "kernels/loss.h"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace capstan {

double ExpOfNegative(double x) {
  constexpr double kSmallest = -708.0;  // e^−708 is the last power of e that is a normal number
  if (!(x >= kSmallest)) return std::isnan(x) ? x : 0.0;
  // x = n·ln 2 + r with |r| ≤ ln(2)/2; ln 2 in two parts, the first of which n multiplies without rounding.
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double n = std::floor(x * kLog2E + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // Taylor's series; the first term left out, r^14/14!, is below 2^−57.
  constexpr double kInverseFactorials[] = {
      1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
      1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,      1.0 / 24.0,      1.0 / 6.0,      0.5};
  double p = 0.0;
  for (const double c : kInverseFactorials) p = p * r + c;
  const double e = 1.0 + (r + (r * r) * p);
  const uint64_t exponent = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  double power;
  std::memcpy(&power, &exponent, sizeof power);
  return e * power;
}

double Log1pOfUnit(double u) {
  // log(1+u) = 2·atanh(s), s = u/(2+u) ≤ 1/3; atanh(s) = s + s³/3 + s⁵/5 + …, where s^35/35 is below 2^−58 of
  // s.
  const double s = u / (2.0 + u);
  const double s2 = s * s;
  double p = 0.0;
  for (int k = 33; k >= 3; k -= 2) p = p * s2 + 1.0 / k;
  return 2.0 * (s + s * s2 * p);
}

double Sigmoid(double z) {
  const double e = ExpOfNegative(-std::fabs(z));
  return z >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

template <typename T>
void BinaryCrossEntropy(size_t n, const T* logits, const float* labels, const float* weights, T* gradient,
                        double* loss, double* weight) {
  for (size_t i = 0; i < n; ++i) {
    const double z = logits[i];
    const double y = labels[i];
    const double w = weights[i];
    const double e = ExpOfNegative(-std::fabs(z));
    const double sigma = (z >= 0.0 ? 1.0 : e) / (1.0 + e);
    const double positive = z > 0.0 ? z : 0.0;
    *loss += w * ((positive - z * y) + Log1pOfUnit(e));
    *weight += w;
    gradient[i] = static_cast<T>((sigma - y) * w);
  }
}

template void BinaryCrossEntropy(size_t, const float*, const float*, const float*, float*, double*, double*);
template void BinaryCrossEntropy(size_t, const double*, const float*, const float*, double*, double*,
                                 double*);

}  // namespace capstan

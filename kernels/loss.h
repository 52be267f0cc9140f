// Binary cross-entropy on logits. The exponential and the logarithm are our own, in double and without fused
// multiply-add: libm picks its code by the CPU, and the bits of a run must not depend on the machine.
#pragma once

#include <cstddef>

namespace capstan {

// e^x for x ≤ 0: within 2 ulp of the true value, 0 below −708, NaN for NaN.
double ExpOfNegative(double x);

// log(1 + u) for 0 ≤ u ≤ 1: within 4 ulp.
double Log1pOfUnit(double u);

// 1 / (1 + e^−z), without overflow for any z.
double Sigmoid(double z);

// Adds, in row order and in double, weights[i] · (max(z,0) − z·y + log1p(e^−|z|)) to *loss and weights[i] to
// *weight; writes (σ(z) − y) · weights[i], the derivative of that sum, to gradient. Arrays: [n].
template <typename T>
void BinaryCrossEntropy(size_t n, const T* logits, const float* labels, const float* weights, T* gradient,
                        double* loss, double* weight);

}  // namespace capstan

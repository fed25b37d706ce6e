// Embed, RmsNorm, AddRmsNorm, Rope, SwiGlu, Add.
#include <cmath>
#include <string>
#include <vector>

#include "engine/ops/conformance/ops_conformance.h"

namespace skein::engine {
namespace {

using ElementwiseConformance = OpsConformance;

TEST_P(ElementwiseConformance, Embed) {
  for (const DType dtype : kDTypes) {
    for (const int64_t hidden : {1, 15, 64, 777}) {
      HostBuffer table(11, hidden, dtype);
      table.Fill(&random_);
      const std::vector<int32_t> ids = {3, 10, 0, 3};
      for (const DType out : kDTypes) {
        HostBuffer actual(4, hidden, out), expected(4, hidden, out);
        ops_->Embed(ids, table.view(), actual.view());
        reference_.Embed(ids, table.view(), expected.view());
        ExpectSame(actual, expected, "embed " + std::to_string(hidden));
      }
    }
  }
}

TEST_P(ElementwiseConformance, RmsNorm) {
  for (const DType weight_dtype : kDTypes) {
    for (const DType out_dtype : kDTypes) {
      for (const int64_t n : {1, 7, 16, 80, 129, 2048}) {
        HostBuffer x(37, n, DType::kF32), weight(1, n, weight_dtype);
        x.Fill(&random_, 3.0f);
        weight.Fill(&random_);
        HostBuffer actual(37, n, out_dtype), expected(37, n, DType::kF32);
        ops_->RmsNorm(x.view(), weight.view(), 1e-5f, actual.view());
        reference_.RmsNorm(x.view(), weight.view(), 1e-5f, expected.view());
        ExpectNear(actual, expected, 1e-7, 2e-6 + RoundingOf(out_dtype),
                   "rms norm " + std::to_string(n));
      }
    }
  }
}

TEST_P(ElementwiseConformance, RmsNormInPlace) {
  HostBuffer x(5, 100, DType::kF32), weight(1, 100, DType::kF32);
  x.Fill(&random_);
  weight.Fill(&random_);
  HostBuffer expected(5, 100, DType::kF32);
  reference_.RmsNorm(x.view(), weight.view(), 1e-6f, expected.view());
  ops_->RmsNorm(x.view(), weight.view(), 1e-6f, x.view());
  ExpectNear(x, expected, 1e-7, 2e-6, "rms norm in place");
}

// Every head by itself, in columns of a wider matrix.
TEST_P(ElementwiseConformance, RmsNormOfHeads) {
  for (const DType weight_dtype : kDTypes) {
    for (const int64_t head_dim : {1, 24, 128, 300}) {
      constexpr int64_t kHeads = 3;
      HostBuffer weight(1, head_dim, weight_dtype);
      HostBuffer x(7, (kHeads + 2) * head_dim, DType::kF32, 4);
      x.Fill(&random_, 3.0f);
      weight.Fill(&random_);
      HostBuffer expected = x;
      const auto heads = [&](HostBuffer& of) {
        Matrix m = of.view();
        m.data = static_cast<float*>(m.data) + head_dim;
        m.cols = kHeads * head_dim;
        return m;
      };
      ops_->RmsNorm(heads(x), weight.view(), 1e-5f, heads(x));
      reference_.RmsNorm(heads(expected), weight.view(), 1e-5f, heads(expected));
      ExpectNear(x, expected, 1e-7, 2e-6, "heads of " + std::to_string(head_dim));
    }
  }
}

TEST_P(ElementwiseConformance, AddRmsNorm) {
  for (const DType weight_dtype : kDTypes) {
    for (const DType out_dtype : kDTypes) {
      for (const int64_t n : {1, 7, 64, 300, 2048}) {
        HostBuffer x(19, n, DType::kF32), y(19, n, DType::kF32), weight(1, n, weight_dtype);
        x.Fill(&random_, 3.0f);
        y.Fill(&random_);
        weight.Fill(&random_);
        HostBuffer actual(19, n, out_dtype), expected(19, n, DType::kF32), sum = x;
        ops_->AddRmsNorm(x.view(), y.view(), weight.view(), 1e-5f, actual.view());
        reference_.AddRmsNorm(sum.view(), y.view(), weight.view(), 1e-5f, expected.view());
        ExpectSame(x, sum, "sum " + std::to_string(n));
        ExpectNear(actual, expected, 1e-7, 2e-6 + RoundingOf(out_dtype),
                   "norm of the sum " + std::to_string(n));
      }
    }
  }
}

TEST_P(ElementwiseConformance, AddRmsNormOfNoRows) {
  HostBuffer x(1, 8, DType::kF32), weight(1, 8, DType::kF32), out(1, 8, DType::kBF16);
  Matrix no_rows = x.view(), no_out = out.view();
  no_rows.rows = no_out.rows = 0;
  ops_->AddRmsNorm(no_rows, no_rows, weight.view(), 1e-5f, no_out);
}

TEST_P(ElementwiseConformance, Rope) {
  for (const int head_dim : {8, 16, 30, 64, 80, 128, 256}) {
    constexpr int64_t kPositions = 40;
    const int64_t half = head_dim / 2;
    std::vector<float> cos, sin;
    for (int64_t i = 0; i < kPositions * half; ++i) {
      cos.push_back(std::cos(static_cast<float>(i)));
      sin.push_back(std::sin(static_cast<float>(i)));
    }
    const RopeTable table{cos.data(), sin.data(), kPositions, head_dim};
    const std::vector<int32_t> positions = {0, 39, 7, 7, 12};
    HostBuffer actual(5, 3 * head_dim, DType::kF32);
    actual.Fill(&random_);
    HostBuffer expected = actual;
    ops_->Rope(actual.view(), positions, table);
    reference_.Rope(expected.view(), positions, table);
    ExpectNear(actual, expected, 1e-6, 1e-6, "rope " + std::to_string(head_dim));
  }
}

TEST_P(ElementwiseConformance, SwiGlu) {
  for (const DType out_dtype : kDTypes) {
    for (const int64_t n : {1, 15, 33, 5632}) {
      HostBuffer both(9, 2 * n, DType::kF32);
      both.Fill(&random_, 6.0f);
      both.set(0, 0, -120.0f);
      both.set(1, 0, 120.0f);
      ConstMatrix gate = both.view(), up = both.view();
      gate.cols = up.cols = n;
      up.data = static_cast<const float*>(up.data) + n;
      HostBuffer actual(9, n, out_dtype), expected(9, n, DType::kF32);
      ops_->SwiGlu(gate, up, actual.view());
      reference_.SwiGlu(gate, up, expected.view());
      ExpectNear(actual, expected, 1e-7, 1e-6 + RoundingOf(out_dtype),
                 "swiglu " + std::to_string(n));
    }
  }
}

TEST_P(ElementwiseConformance, Add) {
  for (const int64_t n : {1, 17, 4096}) {
    HostBuffer actual(13, n, DType::kF32), y(13, n, DType::kF32);
    actual.Fill(&random_);
    y.Fill(&random_);
    HostBuffer expected = actual;
    ops_->Add(actual.view(), y.view());
    reference_.Add(expected.view(), y.view());
    ExpectSame(actual, expected, "add " + std::to_string(n));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ElementwiseConformance, testing::ValuesIn(Implementations()),
                         NameOfImplementation);

}  // namespace
}  // namespace skein::engine

#include "engine/ops/products.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::engine {
namespace {

// q of 6 columns and k of 2 over rows of 4, with biases, side by side in all three places.
class JoinedTest : public testing::Test {
 protected:
  std::vector<float> w_ = std::vector<float>(40), bias_ = std::vector<float>(10),
                     out_ = std::vector<float>(30);
  Product first_{{w_.data(), DType::kF32, 6, 4, 4},
                 {bias_.data(), DType::kF32, 1, 6, 6},
                 {},
                 {out_.data(), DType::kF32, 3, 6, 10}};
  Product second_{{w_.data() + 24, DType::kF32, 2, 4, 4},
                  {bias_.data() + 6, DType::kF32, 1, 2, 2},
                  {},
                  {out_.data() + 6, DType::kF32, 3, 2, 10}};
};

TEST_F(JoinedTest, NeighboursAreOne) {
  const auto joined = Joined(first_, second_);
  ASSERT_TRUE(joined.has_value());
  EXPECT_EQ(joined->w.data, w_.data());
  EXPECT_EQ(joined->w.rows, 8);
  EXPECT_EQ(joined->bias.data, bias_.data());
  EXPECT_EQ(joined->bias.cols, 8);
  EXPECT_EQ(joined->out.data, out_.data());
  EXPECT_EQ(joined->out.cols, 8);
  EXPECT_EQ(joined->out.stride, 10);
  first_.bias = second_.bias = {};
  EXPECT_TRUE(Joined(first_, second_).has_value());
}

TEST_F(JoinedTest, OthersAreNot) {
  EXPECT_FALSE(Joined(second_, first_).has_value());
  const auto expect_apart = [&](const char* what, auto change) {
    Product changed = second_;
    change(changed);
    EXPECT_FALSE(Joined(first_, changed).has_value()) << what;
  };
  expect_apart("a gap between the weights", [&](Product& p) { p.w.data = w_.data() + 28; });
  expect_apart("other rows of weights", [](Product& p) { p.w.stride = 5; });
  expect_apart("other weights", [](Product& p) { p.w.dtype = DType::kBF16; });
  expect_apart("a gap between the biases", [&](Product& p) { p.bias.data = bias_.data() + 7; });
  expect_apart("one bias only", [](Product& p) { p.bias = {}; });
  expect_apart("other biases", [](Product& p) { p.bias.dtype = DType::kF16; });
  expect_apart("a gap between the results", [&](Product& p) { p.out.data = out_.data() + 7; });
  expect_apart("other rows of results", [](Product& p) { p.out.stride = 2; });
  expect_apart("a slice of columns", [](Product& p) { p.slice.columns = 8; });
  first_.bias = {};
  EXPECT_FALSE(Joined(first_, second_).has_value()) << "a bias of the second only";
}

}  // namespace
}  // namespace skein::engine

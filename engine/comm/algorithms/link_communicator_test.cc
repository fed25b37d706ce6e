#include "engine/comm/algorithms/link_communicator.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace skein::engine {
namespace {

// A device whose memory is full.
class FullMemory : public LinkMemory {
 public:
  int64_t PieceBytes() const override { return 1024; }
  absl::StatusOr<std::byte*> Scratch(size_t) override {
    return absl::ResourceExhaustedError("the device is full");
  }
  void Copy(std::byte*, std::span<const std::byte>) override { FAIL(); }
  void Sum(std::span<const void* const>, void*, int64_t, DType) override { FAIL(); }
};

// One of two ranks; nothing moves.
class SilentLink : public Link {
 public:
  int Rank() const override { return 0; }
  int Size() const override { return 2; }
  void Send(int, std::span<const std::byte>, Signature) override { ADD_FAILURE(); }
  void Receive(int, std::span<std::byte>, Signature) override { ADD_FAILURE(); }
  absl::Status Wait(CommDeadline) override { return broken_; }
  absl::Status Health() override { return broken_; }
  LinkMemory* Memory() override { return &memory_; }
  void Abort(const absl::Status& reason) override {
    broken_ = absl::UnavailableError(reason.message());
  }

 private:
  FullMemory memory_;
  absl::Status broken_;
};

// Otherwise the other ranks would wait for this one until their deadlines.
TEST(LinkCommunicatorTest, ARankWithoutRoomToSumBreaksTheGroup) {
  std::vector<float> data(20000), sum(10000);
  const CommDeadline deadline = CommDeadline::max();
  const auto expect_broken = [&](const auto& call) {
    LinkCommunicator comm(std::make_unique<SilentLink>());
    const absl::Status first = call(&comm), second = call(&comm);
    EXPECT_TRUE(absl::IsResourceExhausted(first)) << first;
    EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  };
  for (const int64_t count : {10, 20000}) {
    expect_broken([&](Communicator* comm) {
      return comm->AllReduce(data.data(), count, DType::kF32, deadline);
    });
  }
  expect_broken([&](Communicator* comm) {
    return comm->ReduceScatter(data.data(), sum.data(), 10000, DType::kF32, deadline);
  });
}

}  // namespace
}  // namespace skein::engine

#include "engine/comm/testing/fault_communicator.h"

#include <algorithm>
#include <utility>

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWaitMax = std::chrono::hours(1);  // bounds the arithmetic of far deadlines

}  // namespace

FaultCommunicator::FaultCommunicator(std::unique_ptr<Communicator> inner, Plan plan)
    : inner_(std::move(inner)), plan_(std::move(plan)) {}

absl::Status FaultCommunicator::Interfere(CommDeadline deadline) {
  const CommFault fault = plan_(calls_++);
  if (fault.kind == CommFault::kNone) return absl::OkStatus();
  if (fault.kind == CommFault::kFail) {
    const auto status = absl::UnavailableError("a fault of the plan");
    inner_->Abort(status);
    return status;
  }
  const auto end = std::min(deadline, Clock::now() + kWaitMax);
  const auto until =
      fault.kind == CommFault::kDelay ? std::min(end, Clock::now() + fault.delay) : end;
  std::unique_lock<std::mutex> lock(mutex_);
  const bool aborted = changed_.wait_until(lock, until, [this] { return aborted_; });
  if (aborted || fault.kind == CommFault::kDelay) return absl::OkStatus();
  inner_->Abort(absl::UnavailableError("a rank stalled past its deadline"));
  return absl::DeadlineExceededError("stalled by the plan");
}

absl::Status FaultCommunicator::AllReduce(void* data, int64_t count, DType dtype,
                                          CommDeadline deadline) {
  auto status = Interfere(deadline);
  return status.ok() ? inner_->AllReduce(data, count, dtype, deadline) : status;
}

absl::Status FaultCommunicator::AllGather(std::span<const std::byte> send,
                                          std::span<std::byte> receive, CommDeadline deadline) {
  auto status = Interfere(deadline);
  return status.ok() ? inner_->AllGather(send, receive, deadline) : status;
}

absl::Status FaultCommunicator::ReduceScatter(const void* send, void* receive, int64_t count,
                                              DType dtype, CommDeadline deadline) {
  auto status = Interfere(deadline);
  return status.ok() ? inner_->ReduceScatter(send, receive, count, dtype, deadline) : status;
}

absl::Status FaultCommunicator::AllToAll(std::span<const std::span<const std::byte>> send,
                                         std::span<const std::span<std::byte>> receive,
                                         CommDeadline deadline) {
  auto status = Interfere(deadline);
  return status.ok() ? inner_->AllToAll(send, receive, deadline) : status;
}

absl::Status FaultCommunicator::SendRecv(std::span<const std::byte> send, int to,
                                         std::span<std::byte> receive, int from,
                                         CommDeadline deadline) {
  auto status = Interfere(deadline);
  return status.ok() ? inner_->SendRecv(send, to, receive, from, deadline) : status;
}

absl::Status FaultCommunicator::Broadcast(std::span<std::byte> data, int root,
                                          CommDeadline deadline) {
  auto status = Interfere(deadline);
  return status.ok() ? inner_->Broadcast(data, root, deadline) : status;
}

void FaultCommunicator::Abort(const absl::Status& reason) {
  inner_->Abort(reason);
  std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

}  // namespace skein::engine

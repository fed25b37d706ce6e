#include "engine/comm/device/nccl/nccl_link.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::microseconds(20);
constexpr int kSpins = 200;  // looks at the device before polls sleep between them
constexpr auto kSetUpMax = std::chrono::minutes(10);  // a member may be made so much later
constexpr auto kSetUpPoll = std::chrono::milliseconds(1);
constexpr Signature kIdMessage = 7;  // no operation of LinkCommunicator's

// Sleeps a moment, but not in the first looks.
void Rest(int look) {
  if (look >= kSpins) std::this_thread::sleep_for(kPoll);
}

}  // namespace

absl::Status NcclLink::Here(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::UnavailableError(
      absl::StrCat("nccl: rank ", Rank(), " ", std::string(status.message())));
}

absl::Status NcclLink::Look(ncclResult_t* state) const {
  absl::Status status =
      FromNccl(*nccl_, nccl_->comm_get_async_error(comm_, state), "ncclCommGetAsyncError");
  if (status.ok()) status = FromNccl(*nccl_, *state, "NCCL");
  return Here(status);
}

NcclLink::NcclLink(std::unique_ptr<Link> hosts, const NcclApi* nccl, int device)
    : hosts_(std::move(hosts)), nccl_(nccl), memory_(device) {
  setting_up_ = std::thread([this] {
    SetUp();
    set_up_.store(true, std::memory_order_release);
    set_up_.notify_all();
  });
}

// A set-up under way is broken off; ranks that need this one see it on the hosts' link.
NcclLink::~NcclLink() {
  leaving_ = true;
  if (!set_up_) hosts_->Abort(absl::UnavailableError("a rank left before the group was set up"));
  setting_up_.join();
  if (comm_ != nullptr) nccl_->comm_abort(comm_);
}

void NcclLink::SetUp() {
  set_up_status_ = MakeComm();
  if (!set_up_status_.ok()) hosts_->Abort(set_up_status_);
}

absl::Status NcclLink::MakeComm() {
  absl::Status status = Here(memory_.Open());
  if (!status.ok()) return status;
  ncclUniqueId id{};
  status = ExchangeId(&id);
  if (!status.ok()) return status;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  status = Here(FromNccl(*nccl_, nccl_->comm_init_rank_config(&comm_, Size(), id, Rank(), &config),
                         "ncclCommInitRank"));
  return status.ok() ? AwaitNccl(Clock::now() + kSetUpMax) : status;
}

absl::Status NcclLink::ExchangeId(ncclUniqueId* id) {
  const auto bytes = std::as_writable_bytes(std::span(id, 1));
  if (Rank() == 0) {
    auto status = Here(FromNccl(*nccl_, nccl_->get_unique_id(id), "ncclGetUniqueId"));
    if (!status.ok()) return status;
    for (int to = 1; to < Size(); ++to) hosts_->Send(to, bytes, kIdMessage);
  } else {
    hosts_->Receive(0, bytes, kIdMessage);
  }
  return hosts_->Wait(Clock::now() + kSetUpMax);
}

// Until NCCL's own work on the host (set-up, a launch) is done.
absl::Status NcclLink::AwaitNccl(CommDeadline deadline) {
  for (int look = 0;; ++look) {
    ncclResult_t result = ncclSuccess;
    auto status = Look(&result);
    if (!status.ok() || result != ncclInProgress) return status;
    status = hosts_->Health();
    if (!status.ok()) return status;
    if (leaving_) return absl::UnavailableError("this rank is leaving the group");
    if (Clock::now() >= deadline) return absl::DeadlineExceededError("NCCL is not ready");
    Rest(look);
  }
}

absl::Status NcclLink::AwaitSetUp(CommDeadline deadline) {
  while (!set_up_.load(std::memory_order_acquire)) {
    if (Clock::now() >= deadline) return absl::DeadlineExceededError("the group is not set up");
    std::this_thread::sleep_for(kSetUpPoll);
  }
  return set_up_status_;
}

void NcclLink::Send(int to, std::span<const std::byte> data, Signature signature) {
  messages_.push_back({{true, to, const_cast<std::byte*>(data.data()), data.size()},
                       WithSize(signature, data.size())});
}

void NcclLink::Receive(int from, std::span<std::byte> data, Signature signature) {
  messages_.push_back({{false, from, data.data(), data.size()}, WithSize(signature, data.size())});
}

absl::Status NcclLink::Wait(CommDeadline deadline) {
  auto status = AwaitSetUp(deadline);
  if (!status.ok()) return Fail(status);
  for (const Message& message : messages_) {
    const NcclMessage& of_nccl = message.of_nccl;
    if (of_nccl.outgoing) hosts_->Send(of_nccl.peer, {}, message.signature);
    if (!of_nccl.outgoing) hosts_->Receive(of_nccl.peer, {}, message.signature);
  }
  status = hosts_->Wait(deadline);
  if (!status.ok()) return Fail(status);
  status = Launch();
  if (status.ok()) status = AwaitNccl(deadline);
  if (status.ok()) status = Finish(deadline);
  if (!status.ok()) return Fail(status);
  messages_.clear();
  return status;
}

absl::Status NcclLink::Launch() {
  if (!memory_.error().ok()) return memory_.error();
  auto status = AsCommStatus(cudaSetDevice(memory_.device()), "cudaSetDevice");
  if (!status.ok() || messages_.empty()) return status;
  std::vector<NcclMessage> all;
  for (const Message& message : messages_) all.push_back(message.of_nccl);
  return Here(StartTogether(*nccl_, comm_, memory_.stream(), all));
}

// Until the device has done all that was started.
absl::Status NcclLink::Finish(CommDeadline deadline) {
  for (int look = 0;; ++look) {
    const cudaError_t state = cudaStreamQuery(memory_.stream());
    if (state != cudaErrorNotReady) return AsCommStatus(state, "collective");
    ncclResult_t result = ncclSuccess;
    auto status = Look(&result);
    if (status.ok()) status = hosts_->Health();
    if (!status.ok()) return status;
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", Rank(), "'s deadline passed"));
    }
    Rest(look);
  }
}

// Ends NCCL's kernels, so that nobody touches the buffers any more, and tells the others.
absl::Status NcclLink::Fail(const absl::Status& status) {
  hosts_->Abort(status);
  messages_.clear();
  if (set_up_.load(std::memory_order_acquire) && comm_ != nullptr) {
    nccl_->comm_abort(std::exchange(comm_, nullptr));
    cudaSetDevice(memory_.device());
    cudaStreamSynchronize(memory_.stream());
  }
  return status;
}

}  // namespace skein::engine

#include "engine/comm/paths/comm_ledger.h"

#include <algorithm>
#include <chrono>

#include "engine/comm/call_bytes.h"

namespace skein::engine {
namespace {

constexpr uint64_t kTellingBytes = 1 << 20;  // shorter calls say nothing of a way's speed

class MeteredCommunicator final : public Communicator {
 public:
  MeteredCommunicator(std::unique_ptr<Communicator> group, std::shared_ptr<CommLedger> ledger,
                      GroupWay way)
      : group_(std::move(group)), ledger_(std::move(ledger)), way_(std::move(way)) {}

  const GroupWay& way() const { return way_; }

  int Rank() const override { return group_->Rank(); }
  int Size() const override { return group_->Size(); }
  void Tag(uint64_t tag) override { group_->Tag(tag); }
  void Abort(const absl::Status& reason) override { group_->Abort(reason); }

  absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline deadline) override {
    return Metered(AllReduceBytes(Size(), BytesOfAll(count, dtype)),
                   [&] { return group_->AllReduce(data, count, dtype, deadline); });
  }
  absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                         CommDeadline deadline) override {
    return Metered(AllGatherBytes(Size(), send.size()),
                   [&] { return group_->AllGather(send, receive, deadline); });
  }
  absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                             CommDeadline deadline) override {
    return Metered(Others() * BytesOfAll(count, dtype),
                   [&] { return group_->ReduceScatter(send, receive, count, dtype, deadline); });
  }
  absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive,
                        CommDeadline deadline) override {
    return Metered(AllToAllBytes(Rank(), send, receive),
                   [&] { return group_->AllToAll(send, receive, deadline); });
  }
  absl::Status SendRecv(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                        int from, CommDeadline deadline) override {
    const size_t bytes =
        std::max(to == Rank() ? 0 : send.size(), from == Rank() ? 0 : receive.size());
    return Metered(bytes, [&] { return group_->SendRecv(send, to, receive, from, deadline); });
  }
  absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline deadline) override {
    return Metered(Others() == 0 ? 0 : data.size(),
                   [&] { return group_->Broadcast(data, root, deadline); });
  }

 private:
  uint64_t Others() const { return static_cast<uint64_t>(Size() - 1); }
  static uint64_t BytesOfAll(int64_t count, DType dtype) {
    return static_cast<uint64_t>(count) * BytesOf(dtype);
  }
  template <typename Call>
  absl::Status Metered(uint64_t bytes, const Call& call) {
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status = call();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (status.ok() && bytes > 0) ledger_->Called(Size(), way_.path(), bytes, took.count());
    return status;
  }

  const std::unique_ptr<Communicator> group_;
  const std::shared_ptr<CommLedger> ledger_;
  const GroupWay way_;
};

}  // namespace

CommTotals& CommLedger::At(int ranks, CommPath path) {
  CommTotals& totals = totals_[{ranks, path}];
  totals.ranks = ranks;
  totals.path = path;
  return totals;
}

void CommLedger::Called(int ranks, CommPath path, uint64_t bytes, double seconds) {
  const std::lock_guard lock(mutex_);
  CommTotals& totals = At(ranks, path);
  totals.bytes += bytes;
  totals.busy_seconds += seconds;
  if (bytes < kTellingBytes || seconds <= 0) return;
  totals.best_gb_per_s =
      std::max(totals.best_gb_per_s, static_cast<double>(bytes) / seconds * 1e-9);
}

void CommLedger::Explain(int ranks, CommPath path, std::string why_not) {
  const std::lock_guard lock(mutex_);
  At(ranks, path).why_not = std::move(why_not);
}

std::vector<CommTotals> CommLedger::Totals() const {
  const std::lock_guard lock(mutex_);
  std::vector<CommTotals> all;
  for (const auto& [key, totals] : totals_) {
    if (totals.bytes > 0) all.push_back(totals);
  }
  return all;
}

std::unique_ptr<Communicator> MakeMeteredCommunicator(std::unique_ptr<Communicator> group,
                                                      std::shared_ptr<CommLedger> ledger,
                                                      GroupWay way) {
  return std::make_unique<MeteredCommunicator>(std::move(group), std::move(ledger), std::move(way));
}

const GroupWay* WayOf(const Communicator& group) {
  const auto* metered = dynamic_cast<const MeteredCommunicator*>(&group);
  return metered == nullptr ? nullptr : &metered->way();
}

}  // namespace skein::engine

#include "engine/transport/loopback_transport.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/transport/wire.h"
#include "engine/transport/wire_transport.h"

namespace skein::engine {

// Which memory of which transport may be reached. Copies run under its lock, so that no region goes
// away under one.
class LoopbackFabric {
 public:
  struct Range {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };

  struct Member {
    std::map<uint64_t, Range> ranges;  // by mapping
    std::set<uint64_t> grants;         // that are open
  };

  uint64_t Join() {
    std::lock_guard lock(mutex_);
    members_[next_member_];
    return next_member_++;
  }

  void Leave(uint64_t member) {
    std::lock_guard lock(mutex_);
    members_.erase(member);
  }

  void Add(uint64_t member, uint64_t mapping, Range range) {
    std::lock_guard lock(mutex_);
    members_.at(member).ranges[mapping] = range;
  }

  void Remove(uint64_t member, uint64_t mapping) {
    std::lock_guard lock(mutex_);
    members_.at(member).ranges.erase(mapping);
  }

  void OpenGrant(uint64_t member, uint64_t grant) {
    std::lock_guard lock(mutex_);
    members_.at(member).grants.insert(grant);
  }

  void CloseGrant(uint64_t member, uint64_t grant) {
    std::lock_guard lock(mutex_);
    members_.at(member).grants.erase(grant);
  }

  bool Has(uint64_t member) {
    std::lock_guard lock(mutex_);
    return members_.contains(member);
  }

  // `grant` 0: none is needed.
  absl::Status Copy(uint64_t member, TransferOp op, const WirePiece& piece, uint64_t grant) {
    std::lock_guard lock(mutex_);
    const auto owner = members_.find(member);
    if (owner == members_.end()) return absl::UnavailableError("the peer is gone");
    const Member& target = owner->second;
    if (grant != 0 && !target.grants.contains(grant)) return ClosedGrant();
    const auto found = target.ranges.find(piece.key);
    if (found == target.ranges.end()) return absl::UnavailableError("the peer's region is gone");
    const Range& range = found->second;
    if (piece.remote < range.address || piece.remote - range.address > range.bytes ||
        piece.bytes > range.bytes - (piece.remote - range.address)) {
      return absl::UnavailableError("outside the peer's region");
    }
    auto* const remote = reinterpret_cast<std::byte*>(piece.remote);
    if (op == TransferOp::kPut) std::memcpy(remote, piece.local, piece.bytes);
    if (op == TransferOp::kGet) std::memcpy(piece.local, remote, piece.bytes);
    return absl::OkStatus();
  }

 private:
  std::mutex mutex_;
  uint64_t next_member_ = 1;
  std::map<uint64_t, Member> members_;
};

namespace {

// Copies run under the fabric's lock, so a grant is closed at once, and opening one waits for the
// copy of one piece at most.
class LoopbackGrants : public WireGrants {
 public:
  LoopbackGrants(LoopbackFabric* fabric, uint64_t member) : fabric_(fabric), member_(member) {}

  void Open(uint64_t grant) override { fabric_->OpenGrant(member_, grant); }
  void Close(uint64_t grant) override {
    fabric_->CloseGrant(member_, grant);
    closed_.push_back(grant);
  }
  std::vector<uint64_t> TakeClosed() override { return std::exchange(closed_, {}); }

 private:
  LoopbackFabric* const fabric_;
  const uint64_t member_;
  std::vector<uint64_t> closed_;
};

class LoopbackWire : public Wire {
 public:
  explicit LoopbackWire(std::shared_ptr<LoopbackFabric> fabric)
      : fabric_(std::move(fabric)), member_(fabric_->Join()), grants_(fabric_.get(), member_) {}
  ~LoopbackWire() override { fabric_->Leave(member_); }

  uint64_t member() const { return member_; }

  absl::StatusOr<WireMapping> Map(void* base, size_t bytes) override {
    size_t owned_bytes = 0;
    if (base == nullptr) {
      base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (base == MAP_FAILED) return absl::ResourceExhaustedError("no memory for the region");
      owned_bytes = bytes;
    }
    const uint64_t handle = next_handle_++;
    mappings_[handle] = {base, owned_bytes};
    fabric_->Add(member_, handle, {reinterpret_cast<uint64_t>(base), bytes});
    return WireMapping{handle, static_cast<std::byte*>(base), absl::StrCat(handle)};
  }

  void Unmap(uint64_t mapping) override {
    fabric_->Remove(member_, mapping);
    const auto [base, owned_bytes] = mappings_.at(mapping);
    if (owned_bytes > 0) munmap(base, owned_bytes);
    mappings_.erase(mapping);
  }

  absl::StatusOr<uint64_t> Open(const std::string& worker_address) override {
    uint64_t peer = 0;
    if (!absl::SimpleAtoi(worker_address, &peer)) {
      return absl::InvalidArgumentError("transport description: not a loopback address");
    }
    const uint64_t endpoint = next_handle_++;
    endpoints_[endpoint] = peer;
    return endpoint;
  }

  absl::StatusOr<uint64_t> Import(uint64_t endpoint, const DescribedRegion& region) override {
    uint64_t key = 0;
    if (!absl::SimpleAtoi(region.key, &key)) {
      return absl::InvalidArgumentError("transport description: not a loopback key");
    }
    return key;
  }

  void Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
             WireTicket* ticket) override {
    for (const WirePiece& piece : pieces) {
      if (!ticket->error.ok()) return;
      ticket->error = fabric_->Copy(endpoints_.at(endpoint), op, piece, ticket->grant);
    }
  }
  void Flush(uint64_t, WireTicket*) override {}

  WireGrants* Grants() override { return &grants_; }
  bool Progress() override { return false; }
  std::optional<int> Arm() override { return -1; }

  absl::Status Health(uint64_t endpoint) override {
    if (fabric_->Has(endpoints_.at(endpoint))) return absl::OkStatus();
    return absl::UnavailableError("the peer is gone");
  }

  std::string TransportName(uint64_t endpoint) override { return "loopback"; }
  TransferPath Path(uint64_t endpoint) override { return TransferPath::kDirect; }
  void Close(uint64_t endpoint) override { endpoints_.erase(endpoint); }

 private:
  struct Mapping {
    void* base = nullptr;
    size_t owned_bytes = 0;
  };

  const std::shared_ptr<LoopbackFabric> fabric_;
  const uint64_t member_;
  LoopbackGrants grants_;
  uint64_t next_handle_ = 1;
  std::map<uint64_t, Mapping> mappings_;
  std::map<uint64_t, uint64_t> endpoints_;  // -> member
};

}  // namespace

std::shared_ptr<LoopbackFabric> MakeLoopbackFabric() { return std::make_shared<LoopbackFabric>(); }

std::unique_ptr<Transport> MakeLoopbackTransport(std::shared_ptr<LoopbackFabric> fabric) {
  auto wire = std::make_unique<LoopbackWire>(std::move(fabric));
  std::string address = absl::StrCat(wire->member());
  return std::make_unique<WireTransport>(TransportKind::kLoopback, std::move(address),
                                         std::move(wire));
}

}  // namespace skein::engine

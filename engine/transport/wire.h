// Wire: the interface between WireTransport and a medium. Internal to engine/transport; callers use
// transport.h. Every method is called under the transport's lock, so a Wire needs none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/transport/description.h"
#include "engine/transport/transport.h"

namespace skein::engine {

// Counts operations that have not ended. The wire updates it, in Progress or Close at the latest.
struct WireTicket {
  uint64_t grant = 0;  // of the put; the caller's
  uint32_t in_flight = 0;
  uint64_t bytes_in_flight = 0;
  absl::Status error;  // the first one
};

struct WireMapping {
  uint64_t handle = 0;
  std::byte* base = nullptr;
  std::string key;  // for the peers' Import
};

// A run of bytes on both sides.
struct WirePiece {
  std::byte* local = nullptr;
  uint64_t remote = 0;
  uint64_t bytes = 0;
  uint64_t key = 0;  // from Import
};

enum class TransferPath { kDirect, kHostStaged };  // PeerInfo::path

// Grants (transport.h), at both ends of a wire. Used under the transport's lock, but for Open.
class WireGrants {
 public:
  enum class Permit { kGiven, kAsked };

  virtual ~WireGrants() = default;

  // ---- at the target ----
  // From any thread, also during Progress; never waits for it. Puts that a peer makes under the
  // grant after this has returned are applied, even by a Progress that had begun before.
  virtual void Open(uint64_t grant) = 0;
  virtual void Close(uint64_t grant) = 0;  // after its Open has returned
  virtual std::vector<uint64_t> TakeClosed() = 0;

  // ---- at the source ----
  // Whether puts under `grant` may be started. kAsked: not yet, the target was asked; its answer is
  // progress. If it refuses, the grant is withdrawn. Always given where the target applies the
  // bytes.
  virtual Permit Ask(uint64_t endpoint, uint64_t grant) { return Permit::kGiven; }
  // Grants whose permission the target has withdrawn and that were not acknowledged.
  virtual std::vector<uint64_t> Withdrawn(uint64_t endpoint) { return {}; }
  // Nothing of the grant is under way, and nothing will be before it was asked for again.
  virtual void Acknowledge(uint64_t endpoint, uint64_t grant) {}
  // Whether Ask asks: only then may a wire write to the peer's memory by itself.
  virtual bool Asks(uint64_t endpoint) const { return false; }
};

// The end of a put under a closed grant.
inline absl::Status ClosedGrant() {
  return absl::FailedPreconditionError("the target has closed the grant");
}

class Wire {
 public:
  virtual ~Wire() = default;

  // Null base: the wire allocates.
  virtual absl::StatusOr<WireMapping> Map(void* base, size_t bytes) = 0;
  virtual void Unmap(uint64_t mapping) = 0;

  virtual absl::StatusOr<uint64_t> Open(const std::string& worker_address) = 0;
  virtual absl::StatusOr<uint64_t> Import(uint64_t endpoint, const DescribedRegion& region) = 0;

  // Done on return, or counted in the ticket until Progress finishes it. Errors go to the ticket.
  // Pieces given together may travel together, which is what makes many small ones fast.
  virtual void Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
                     WireTicket* ticket) = 0;

  // As Start; ends when all puts started before it at this endpoint are visible to the target, with
  // FAILED_PRECONDITION if the ticket's grant is closed there.
  virtual void Flush(uint64_t endpoint, WireTicket* ticket) = 0;

  // Never null; lives as long as the wire.
  virtual WireGrants* Grants() = 0;

  // True if anything moved.
  virtual bool Progress() = 0;

  // Prepares to sleep. Returns a descriptor that becomes readable at the next event, -1 if there
  // will be no event, and nullopt if events already wait or if only another try can show progress.
  virtual std::optional<int> Arm() = 0;

  // An error once the peer was found dead.
  virtual absl::Status Health(uint64_t endpoint) = 0;
  virtual std::string TransportName(uint64_t endpoint) = 0;
  virtual TransferPath Path(uint64_t endpoint) = 0;
  // PeerInfo::why_not_faster.
  virtual std::string WhyNotFaster(uint64_t endpoint) { return ""; }

  // Closes the endpoint in bounded time. Afterwards no ticket counts an operation of it, and its
  // keys are gone. Acknowledges all of its grants.
  virtual void Close(uint64_t endpoint) = 0;
};

}  // namespace skein::engine

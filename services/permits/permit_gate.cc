#include "services/permits/permit_gate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/same_secret.h"
#include "services/log/log.h"
#include "services/log/repeat_limit.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

constexpr char kOtherAddress[] = "permit: already used from another address";

bool IsLoopback(std::string_view host) {
  return host == "::1" || host.substr(0, 4) == "127." || host.substr(0, 5) == "unix:";
}

}  // namespace

std::string HostOfPeer(std::string_view peer) {
  std::string_view host = peer;
  for (const std::string_view scheme : {"ipv4:", "ipv6:"}) {
    if (host.substr(0, scheme.size()) == scheme) host.remove_prefix(scheme.size());
  }
  if (!IsLoopback(host)) host = host.substr(0, host.rfind(':'));
  std::string out(host);
  // gRPC writes the brackets of an IPv6 address in percent-encoding.
  for (const std::string_view bracket : {"%5B", "%5D", "[", "]", "::ffff:"}) {
    const size_t at = out.find(bracket);
    if (at != std::string::npos) out.erase(at, bracket.size());
  }
  return IsLoopback(out) ? "local" : out;
}

PermitGate::PermitGate(std::function<int64_t()> now_s)
    : now_s_(now_s ? std::move(now_s) : [] { return MonotonicUs() / 1'000'000; }) {}

std::string_view PermitGate::NameOf(Refusal why) {
  switch (why) {
    case Refusal::kMissing:
      return "missing";
    case Refusal::kForged:
      return "forged";
    case Refusal::kExpired:
      return "expired";
    case Refusal::kReplayed:
      return "replayed";
    case Refusal::kOtherRequest:
      return "other_request";
    case Refusal::kOtherWriter:
      return "other_writer";
    case Refusal::kOtherWorker:
      return "other_worker";
    case Refusal::kNewerKey:
      return "newer_key";
  }
  return "unknown";
}

absl::Status PermitGate::TakeKey(uint64_t generation, const std::string& public_key) {
  std::shared_ptr<EVP_PKEY> key;
  if (!public_key.empty()) {
    absl::StatusOr<KeyPtr> read = PermitKeyFrom(public_key);
    if (!read.ok()) return read.status();
    key = *std::move(read);
  }
  const int64_t now_s = now_s_();
  std::lock_guard lock(mutex_);
  asks_ = key != nullptr;
  newest_generation_ = std::max(newest_generation_, generation);
  for (auto& [id, known] : keys_) known.until_s = std::min(known.until_s, now_s + kFormerKeyS);
  std::erase_if(keys_, [now_s](const auto& known) { return known.second.until_s < now_s; });
  if (key != nullptr) {  // a key that was known keeps what is known of its owner's clock
    Key& known = keys_[PermitKeyId(public_key)];
    known.key = std::move(key);
    known.until_s = INT64_MAX;
  }
  return absl::OkStatus();
}

absl::Status PermitGate::Refuse(Refusal why, const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    ++refused_[static_cast<size_t>(why)];
  }
  const std::string reason(NameOf(why));
  if (AdmitRepeated(absl::StrCat("permit refused ", reason))) {
    LogWarning("permit refused", {{"reason", text}});
  }
  if (why == Refusal::kNewerKey) return absl::UnavailableError(text);
  return absl::PermissionDeniedError(text);
}

absl::Status PermitGate::Verify(const std::string& bytes, scheduler::RequestId id,
                                scheduler::Epoch epoch, scheduler::Incarnation writer,
                                Permit* out) {
  const std::optional<Permit> permit = ReadPermit(bytes);
  if (!permit.has_value()) return Refuse(Refusal::kForged, "permit: these bytes are no permit");
  std::shared_ptr<EVP_PKEY> key;
  bool newer = false;
  {
    std::lock_guard lock(mutex_);
    const auto known = keys_.find(permit->key);
    if (known != keys_.end() && now_s_() <= known->second.until_s) key = known->second.key;
    newer = permit->generation > newest_generation_;
  }
  if (key == nullptr && newer) {
    return Refuse(Refusal::kNewerKey,
                  absl::StrCat("permit: orchestrator generation ", permit->generation,
                               " has not welcomed this worker yet"));
  }
  if (key == nullptr || !IsSignedBy(key.get(), bytes)) {
    return Refuse(Refusal::kForged, "permit: not signed by an orchestrator of this worker");
  }
  if (HasExpired(*permit)) return Refuse(Refusal::kExpired, "permit: it has expired");
  if (permit->id != id || permit->epoch != epoch) {
    return Refuse(
        Refusal::kOtherRequest,
        absl::StrCat("permit: for request ", ToString(permit->id), ", epoch ", permit->epoch.value,
                     ", not for ", ToString(id), ", epoch ", epoch.value));
  }
  if (permit->writer != writer) {
    return Refuse(Refusal::kOtherWriter, "permit: for another writer");
  }
  if (permit->decode != process_) {
    return Refuse(Refusal::kOtherWorker,
                  "permit: for another decode-worker, or its former process");
  }
  *out = *permit;
  return absl::OkStatus();
}

bool PermitGate::HasExpired(const Permit& permit) {
  const int64_t now_s = now_s_();
  std::lock_guard lock(mutex_);
  const auto known = keys_.find(permit.key);
  if (known == keys_.end()) return true;
  int64_t& ahead_s = known->second.ahead_s;
  ahead_s = std::max(ahead_s, permit.issued_s - now_s);
  return now_s + ahead_s > permit.expires_s;
}

absl::Status PermitGate::Use(const Permit& permit, const Shown& shown, const Transfer& transfer,
                             bool ends) {
  const char* replayed = nullptr;
  const int64_t now_s = now_s_();
  {
    std::lock_guard lock(mutex_);
    ForgetExpired(now_s);
    const Used* opened = UsedOf(transfer);
    const auto known = used_.find(permit.nonce);
    if (opened != nullptr && opened->writer != permit.writer) {
      replayed = "permit: another writer has opened this transfer under that instance's name";
    } else if (known == used_.end()) {
      used_[permit.nonce] = {shown.permit, shown.from, permit.writer, transfer, ends};
      open_[transfer] = permit.nonce;
      expiring_.insert({now_s + (permit.expires_s - permit.issued_s), permit.nonce});
    } else if (known->second.from != shown.from) {
      replayed = kOtherAddress;
    } else if (known->second.spent && !ends) {
      replayed = "permit: already used, and its transfer has ended";
    } else {
      known->second.spent = known->second.spent || ends;
    }
  }
  return replayed == nullptr ? absl::OkStatus() : Refuse(Refusal::kReplayed, replayed);
}

template <class Request>
absl::Status PermitGate::Begin(Request* request, const Shown& shown, bool ends) {
  if (!AsksForPermits()) return absl::OkStatus();
  if (shown.permit.empty()) {
    request->unpermitted = true;
    return absl::OkStatus();
  }
  Permit permit;
  absl::Status valid =
      Verify(shown.permit, request->id, request->epoch, request->incarnation, &permit);
  if (!valid.ok()) return valid;
  return Use(permit, shown, {request->id, request->epoch, request->prefill}, ends);
}

absl::Status PermitGate::Open(scheduler::OpenTransferRequest* request, const Shown& shown) {
  return Begin(request, shown, /*ends=*/false);
}

absl::Status PermitGate::Abort(scheduler::AbortRequest* request, const Shown& shown) {
  const Transfer transfer = {request->id, request->epoch, request->prefill};
  bool opened = false;
  {
    std::lock_guard lock(mutex_);
    opened = UsedOf(transfer) != nullptr;
  }
  return opened ? GoOn(transfer, shown, /*ends=*/true) : Begin(request, shown, /*ends=*/true);
}

// Where no permit has opened the transfer, the call is left to the core: either the core does not
// know the transfer, or its writer is of an older build.
absl::Status PermitGate::GoOn(const Transfer& transfer, const Shown& shown, bool ends) {
  bool is_same = false;
  {
    std::lock_guard lock(mutex_);
    const auto nonce = open_.find(transfer);
    if (nonce == open_.end()) return absl::OkStatus();
    Used& opened = used_.at(nonce->second);
    is_same = SameSecret(shown.permit, opened.permit);
    if (is_same && opened.from == shown.from) {
      opened.spent = opened.spent || ends;
      return absl::OkStatus();
    }
  }
  if (is_same) return Refuse(Refusal::kReplayed, kOtherAddress);
  if (shown.permit.empty()) {
    return Refuse(Refusal::kMissing, "permit: this transfer was opened with one, show it again");
  }
  return Refuse(Refusal::kForged, "permit: not the one that opened this transfer");
}

void PermitGate::CountMissing() { Refuse(Refusal::kMissing, "permit: is missing").IgnoreError(); }

const PermitGate::Used* PermitGate::UsedOf(const Transfer& transfer) const {
  const auto nonce = open_.find(transfer);
  return nonce == open_.end() ? nullptr : &used_.at(nonce->second);
}

bool PermitGate::AsksForPermits() const {
  std::lock_guard lock(mutex_);
  return asks_;
}

void PermitGate::ForgetExpired(int64_t now_s) {
  while (!expiring_.empty() && expiring_.begin()->first < now_s) {
    const auto used = used_.find(expiring_.begin()->second);
    const auto opened = open_.find(used->second.transfer);
    if (opened != open_.end() && opened->second == used->first) open_.erase(opened);
    used_.erase(used);
    expiring_.erase(expiring_.begin());
  }
}

std::array<uint64_t, PermitGate::kRefusals> PermitGate::Refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

size_t PermitGate::remembered() const {
  std::lock_guard lock(mutex_);
  return used_.size();
}

}  // namespace skein::services

#include "engine/transport/ucx/ucx_target.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "engine/host/process_watch.h"

namespace skein::engine {
void UcxTarget::CloseAll() {
  while (!inbound_.empty()) Close(std::move(inbound_.extract(inbound_.begin()).mapped()));
}

Endpoint* UcxTarget::Inbound(const Header& header) {
  const auto found = inbound_.find(header.connection);
  return found == inbound_.end() ? nullptr : found->second.get();
}

Endpoint* UcxTarget::Used(const Header& header) {
  Endpoint* const endpoint = Inbound(header);
  if (endpoint != nullptr) endpoint->used = ++uses_;
  return endpoint;
}

void UcxTarget::OnHello(const Header& header, const std::byte* data, size_t bytes) {
  if (bytes == 0 || inbound_.contains(header.connection) || !MakeRoom()) return;
  auto endpoint = endpoints_->Open(std::string(reinterpret_cast<const char*>(data), bytes));
  if (!endpoint.ok()) return;  // the source's flush stays unanswered, and its timeout says so
  (*endpoint)->connection = header.connection;
  (*endpoint)->used = ++uses_;
  inbound_[header.connection] = *std::move(endpoint);
}

bool UcxTarget::IsIdle(const Endpoint& endpoint) const {
  return endpoint.flushes.empty() && endpoint.operations.empty() && endpoint.writes_under.empty() &&
         endpoint.puts_applied == endpoint.puts_received &&
         std::none_of(gets_.begin(), gets_.end(), [&](const DeviceGet& get) {
           return get.header.connection == endpoint.connection;
         });
}

// What has to leave is closed by CloseLost: this is within a message.
bool UcxTarget::MakeRoom() {
  size_t held = 0;
  Endpoint* idle = nullptr;
  for (const auto& [connection, endpoint] : inbound_) {
    if (!endpoint->health.ok()) continue;
    ++held;
    const bool older = idle == nullptr || endpoint->used < idle->used;
    if (older && IsIdle(*endpoint)) idle = endpoint.get();
  }
  if (held < sources_max_) return true;
  if (idle == nullptr) return false;
  Send(idle, kBye, {.connection = idle->connection}, nullptr, 0, nullptr);
  idle->health = absl::ResourceExhaustedError("its place was needed for another source");
  return true;
}

void UcxTarget::OnPut(const Header& header, std::span<const Fragment> fragments,
                      std::span<const std::byte> data) {
  Endpoint* const endpoint = Used(header);
  if (endpoint == nullptr) return;
  uint64_t mark = 0;
  // A late one is dropped; its flush is told so.
  const bool may = grants_->IsOpen(header.grant);
  if (may && !memory_->Scatter(fragments, data, &mark)) endpoint->refused = true;
  if (mark > 0) grants_->Applied(mark);
  // In the order of arrival: a flush counts puts.
  const bool behind = endpoint->puts_applied < endpoint->puts_received;
  ++endpoint->puts_received;
  if (mark > 0 || behind) {
    copying_.push_back({header.connection, mark});
    return;
  }
  ++endpoint->puts_applied;
  if (!endpoint->flushes.empty()) AnswerFlushes(endpoint);
}

bool UcxTarget::ProgressPuts() {
  const bool any = !copying_.empty();
  while (!copying_.empty() && (copying_.front().mark == 0 || inbox_->Done(copying_.front().mark))) {
    Endpoint* const endpoint = Inbound({.connection = copying_.front().connection});
    copying_.pop_front();
    if (endpoint == nullptr) continue;
    endpoint->refused |= inbox_->failed();
    ++endpoint->puts_applied;
    AnswerFlushes(endpoint);
  }
  return any;
}

bool UcxTarget::ProgressGets() {
  bool moved = false;
  for (auto it = gets_.begin(); it != gets_.end();) {
    const auto get = it++;
    moved |= Advance(&*get);
    if (!get->answered || get->sent.in_flight > 0) continue;
    if (get->fetched.slot != nullptr) inbox_->GiveBack(get->fetched.slot);
    gets_.erase(get);
  }
  return moved;
}

// Until the answer is sent: waits for a slot, then for the copy.
bool UcxTarget::Advance(DeviceGet* get) {
  if (get->answered) return false;
  if (get->fetched.slot == nullptr) {
    const Header& header = get->header;
    const std::byte* const from = memory_->Place(header.mapping, header.address, header.count);
    const absl::StatusOr<DeviceInbox::Fetched> fetched =
        from == nullptr ? absl::NotFoundError("the region has been unregistered")
                        : inbox_->Get(from, header.count);
    if (!fetched.ok()) {
      Answer(get->header, nullptr, nullptr);
      get->answered = true;
      return true;
    }
    get->fetched = *fetched;
    return get->fetched.slot != nullptr;
  }
  if (!inbox_->Done(get->fetched.mark)) return true;
  Answer(get->header, inbox_->failed() ? nullptr : get->fetched.slot, &get->sent);
  get->answered = true;
  return true;
}

bool UcxTarget::Progress() {
  if (inbox_ == nullptr) return false;
  const bool puts = ProgressPuts();
  return ProgressGets() || puts;
}

void UcxTarget::OnFlush(const Header& header, const std::byte*, size_t) {
  Endpoint* const endpoint = Used(header);
  if (endpoint == nullptr) return;
  endpoint->flushes.push_back({header.count, header.id, header.grant});
  AnswerFlushes(endpoint);
}

// A grant that is open now was open when its puts were applied: none is opened twice.
void UcxTarget::AnswerFlushes(Endpoint* endpoint) {
  std::erase_if(endpoint->flushes, [&](const FlushAsked& flush) {
    if (endpoint->puts_applied < flush.count) return false;
    const uint64_t late = grants_->IsOpen(flush.grant) ? 0 : kRefusedGrant;
    const uint64_t refused = endpoint->refused ? kRefusedRegion : late;
    Send(endpoint, kAnswer,
         {.connection = endpoint->connection, .id = flush.id, .refused = refused}, nullptr, 0,
         nullptr);
    return true;
  });
}

void UcxTarget::OnGet(const Header& header, const std::byte*, size_t) {
  Endpoint* const endpoint = Used(header);
  if (endpoint == nullptr) return;
  const bool fits = header.count <= kMessageBytesMax;
  const std::byte* const place =
      fits ? memory_->Place(header.mapping, header.address, header.count) : nullptr;
  if (place != nullptr && IsDeviceMapping(header.mapping)) {
    gets_.push_back({.header = header});
  } else {
    Answer(header, place, nullptr);
  }
}

// Null `data`: a refusal.
void UcxTarget::Answer(const Header& header, const std::byte* data, WireTicket* ticket) {
  Endpoint* const endpoint = Inbound(header);
  if (endpoint == nullptr) return;
  Send(endpoint, kAnswer,
       {.connection = header.connection, .id = header.id, .refused = data == nullptr}, data,
       data == nullptr ? 0 : header.count, ticket);
}

void UcxTarget::OnBye(const Header& header, const std::byte*, size_t) {
  Endpoint* const endpoint = Inbound(header);
  if (endpoint == nullptr) return;
  endpoint->cut_off = header.refused == kCutOff;
  endpoint->left = !endpoint->cut_off;
  endpoint->health = absl::UnavailableError("the source left");
  // Now: a kHello behind this needs an endpoint of UCX that leads to the source's new one.
  if (endpoint->cut_off) UcxEndpoints::Cut(endpoint);
}

void UcxTarget::OnAsk(const Header& header) {
  if (Endpoint* const endpoint = Used(header); endpoint != nullptr) {
    grants_->OnAsk(endpoint, header.grant);
  }
}

void UcxTarget::OnWithdrawn(const Header& header) {
  if (Endpoint* const endpoint = Inbound(header); endpoint != nullptr) {
    grants_->OnWithdrawn(endpoint, header.grant);
  }
}

void UcxTarget::Close(std::unique_ptr<Endpoint> endpoint) {
  grants_->Forget(endpoint.get());
  endpoints_->Close(std::move(endpoint));
}

// Whether a source that is lost may still write by RMA, under grants that it did not give back: one
// of this host until its process has ended, or said that it has cut the connection; any other until
// its connection is closed here, as the queue pair of its puts goes with that.
bool UcxTarget::MayWrite(Endpoint* source) {
  if (source->near || source->left || source->writes_under.empty()) return false;
  if (!source->cut_off && VisibleProcess(source->process).has_value()) {
    return !HasEnded(source->process);
  }
  return !UcxEndpoints::Cut(source);
}

void UcxTarget::CloseLost() {
  for (auto it = inbound_.begin(); it != inbound_.end();) {
    const auto next = std::next(it);
    if (!it->second->health.ok() && !MayWrite(it->second.get()))
      Close(std::move(inbound_.extract(it).mapped()));
    it = next;
  }
}

}  // namespace skein::engine

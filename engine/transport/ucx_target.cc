#include "engine/transport/ucx_target.h"

#include <iterator>
#include <string>
#include <utility>

namespace skein::engine {
namespace {

constexpr size_t kInboundMax = 1024;

}  // namespace

void UcxTarget::CloseAll() {
  while (!inbound_.empty())
    endpoints_->Close(std::move(inbound_.extract(inbound_.begin()).mapped()));
}

Endpoint* UcxTarget::Inbound(const Header& header) {
  const auto found = inbound_.find(header.connection);
  return found == inbound_.end() ? nullptr : found->second.get();
}

void UcxTarget::OnHello(const Header& header, const std::byte* data, size_t bytes) {
  if (bytes == 0 || inbound_.size() >= kInboundMax || inbound_.contains(header.connection)) return;
  auto endpoint = endpoints_->Open(std::string(reinterpret_cast<const char*>(data), bytes));
  if (!endpoint.ok()) return;  // the source's flush stays unanswered, and its timeout says so
  (*endpoint)->connection = header.connection;
  inbound_[header.connection] = *std::move(endpoint);
}

void UcxTarget::OnPut(const Header& header, std::span<const Fragment> fragments,
                      std::span<const std::byte> data) {
  Endpoint* const endpoint = Inbound(header);
  if (endpoint == nullptr) return;
  if (!memory_->Scatter(fragments, data)) endpoint->refused = true;
  ++endpoint->puts_applied;
  if (!endpoint->flushes.empty()) AnswerFlushes(endpoint);
}

void UcxTarget::OnFlush(const Header& header, const std::byte*, size_t) {
  Endpoint* const endpoint = Inbound(header);
  if (endpoint == nullptr) return;
  endpoint->flushes.emplace_back(header.count, header.id);
  AnswerFlushes(endpoint);
}

void UcxTarget::AnswerFlushes(Endpoint* endpoint) {
  std::erase_if(endpoint->flushes, [&](const auto& flush) {
    const auto [count, id] = flush;
    if (endpoint->puts_applied < count) return false;
    Send(endpoint, kAnswer,
         {.connection = endpoint->connection, .id = id, .refused = endpoint->refused}, nullptr, 0,
         nullptr);
    return true;
  });
}

void UcxTarget::OnGet(const Header& header, const std::byte*, size_t) {
  Endpoint* const endpoint = Inbound(header);
  if (endpoint == nullptr) return;
  const bool fits = header.count <= kMessageBytesMax;
  const std::byte* const place =
      fits ? memory_->Place(header.mapping, header.address, header.count) : nullptr;
  Send(endpoint, kAnswer,
       {.connection = header.connection, .id = header.id, .refused = place == nullptr}, place,
       place == nullptr ? 0 : header.count, nullptr);
}

void UcxTarget::OnBye(const Header& header, const std::byte*, size_t) {
  if (Endpoint* const endpoint = Inbound(header); endpoint != nullptr) {
    endpoint->health = absl::UnavailableError("the source left");
  }
}

void UcxTarget::CloseLost() {
  for (auto it = inbound_.begin(); it != inbound_.end();) {
    const auto next = std::next(it);
    if (!it->second->health.ok()) endpoints_->Close(std::move(inbound_.extract(it).mapped()));
    it = next;
  }
}

}  // namespace skein::engine

#include "scheduler/worker/group/step_feed.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

constexpr uint64_t kListMax = 1 << 20;     // entries
constexpr uint64_t kTextMax = 1000;        // bytes of a reason
constexpr uint64_t kRanksMax = 4096;       // of a mode
constexpr uint64_t kTokensMax = 1u << 30;  // of a slice, or of a sequence

class Writer {
 public:
  void Number(uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<char>(value));
  }
  void Fixed(uint64_t value) { out_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void Text(std::string_view text) {
    text = text.substr(0, kTextMax);
    Number(text.size());
    out_.append(text);
  }
  void Bytes(std::string_view bytes) {
    Number(bytes.size());
    out_.append(bytes);
  }
  void Reason(const absl::Status& status) {
    Number(static_cast<uint64_t>(status.raw_code()));
    Text({status.message().data(), status.message().size()});
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// After the first field that cannot be read, all others are 0, and status() names it.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t Number(const char* field, uint64_t max = std::numeric_limits<uint64_t>::max()) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return Fail(field, "is cut off");
      const auto byte = static_cast<uint64_t>(bytes_.front());
      bytes_ = bytes_.subspan(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value <= max ? value : Fail(field, "is too large");
    }
    return Fail(field, "is too long");
  }
  uint64_t Fixed(const char* field) {
    uint64_t value = 0;
    if (bytes_.size() < sizeof value) return Fail(field, "is cut off");
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  absl::Status Reason(const char* field) {
    const uint64_t code = Number(field, 16);
    const uint64_t size = Number(field, kTextMax);
    if (bytes_.size() < size) Fail(field, "is cut off");
    if (!status_.ok()) return absl::UnknownError("");
    const std::string text(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    if (code == 0) Fail(field, "is OK, but must be an error");
    return absl::Status(static_cast<absl::StatusCode>(code), text);
  }
  std::string Bytes(const char* field, uint64_t max) {
    const uint64_t size = Number(field, max);
    if (bytes_.size() < size) Fail(field, "is cut off");
    if (!status_.ok()) return "";
    std::string bytes(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return bytes;
  }
  // Of a list whose entries have at least one byte.
  uint64_t Count(const char* field) {
    const uint64_t count = Number(field, kListMax);
    return count <= bytes_.size() ? count : Fail(field, "has more entries than bytes");
  }
  // What was read, if it was all.
  absl::StatusOr<FeedMessage> Finish(FeedMessage message) {
    if (status_.ok() && !bytes_.empty()) Fail("message", "has bytes after its end");
    if (!status_.ok()) return status_;
    return message;
  }

 private:
  uint64_t Fail(const char* field, const char* what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
    bytes_ = {};
    return 0;
  }

  std::span<const std::byte> bytes_;
  absl::Status status_;
};

struct Write {
  Writer& out;

  void operator()(const FeedPlan& plan) {
    out.Number(static_cast<uint64_t>(plan.mode.sp));
    out.Number(static_cast<uint64_t>(plan.mode.tp));
    out.Number(static_cast<uint64_t>(plan.own_tokens));
    out.Number(static_cast<uint64_t>(plan.wanted_blocks));
    for (const auto* handles : {&plan.removed, &plan.preempted}) {
      out.Number(handles->size());
      for (const uint32_t handle : *handles) out.Number(handle);
    }
    out.Number(plan.added.size());
    for (const FeedAdded& added : plan.added) {
      out.Number(added.handle);
      Name(added.id, added.epoch);
    }
    out.Number(plan.slices.size());
    for (const FeedSlice& slice : plan.slices) {
      out.Number(slice.handle);
      out.Number(static_cast<uint64_t>(slice.tokens));
    }
  }
  void operator()(const FeedReady&) {}
  void operator()(const FeedGo&) {}
  void operator()(const FeedCancel&) {}
  void operator()(const FeedRefusal& refusal) {
    out.Number(static_cast<uint64_t>(refusal.free_blocks));
    out.Reason(refusal.why);
  }
  void operator()(const FeedDone& done) {
    out.Number(static_cast<uint64_t>(done.free_blocks));
    out.Number(done.counted);
    out.Number(static_cast<uint64_t>(done.own_tokens));
    out.Fixed(done.digest);
    out.Number(done.own_waits ? 1 : 0);
  }
  void operator()(const FeedEnd& end) { out.Reason(end.why); }
  void operator()(const FeedOffer& offer) {
    Name(offer.id, offer.request_epoch);
    out.Number(static_cast<uint64_t>(offer.prompt_tokens));
    out.Number(static_cast<uint64_t>(offer.sent_tokens));
    out.Number(static_cast<uint64_t>(offer.output_tokens));
    out.Number(static_cast<uint64_t>(offer.max_tokens));
    out.Number(static_cast<uint64_t>(offer.min_tokens));
    out.Number(static_cast<uint64_t>(offer.kv_tokens));
    out.Bytes(offer.sampling);
    Tokens(offer.stop_token_ids);
    out.Number(static_cast<uint64_t>(offer.first));
    Tokens(offer.tokens);
    out.Number(static_cast<uint32_t>(offer.priority));
    out.Number(static_cast<uint64_t>(offer.age_us));
  }
  void operator()(const FeedWithdraw& withdraw) { Name(withdraw.id, withdraw.request_epoch); }
  void operator()(const FeedOwn& own) { out.Number(static_cast<uint64_t>(own.own_tokens)); }
  void operator()(const FeedReserve& reserve) {
    out.Number(reserve.number);
    Name(reserve.id, reserve.request_epoch);
    out.Number(static_cast<uint64_t>(reserve.tokens));
  }
  void operator()(const FeedReserved& reserved) {
    out.Number(reserved.number);
    Name(reserved.id, reserved.request_epoch);
    out.Number(reserved.why.ok() ? 1 : 0);
    if (!reserved.why.ok()) return out.Reason(reserved.why);
    out.Number(reserved.blocks.size());
    for (const BlockId block : reserved.blocks) out.Number(static_cast<uint64_t>(block.value));
    out.Bytes(reserved.memory);
  }

  void Tokens(const std::vector<int32_t>& tokens) {
    out.Number(tokens.size());
    for (const int32_t token : tokens) out.Number(static_cast<uint32_t>(token));
  }
  void Name(RequestId id, Epoch request_epoch) {
    out.Fixed(id.router);
    out.Number(id.serial);
    out.Number(request_epoch.value);
  }
};

uint64_t StepOf(const FeedMessage& message) {
  return std::visit(
      [](const auto& one) -> uint64_t {
        if constexpr (requires { one.step; }) return one.step;
        return 0;
      },
      message);
}

constexpr uint64_t kHandleMax = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kBlocksMax = std::numeric_limits<int32_t>::max();

FeedPlan ReadPlan(uint64_t epoch, uint64_t step, Reader* in) {
  FeedPlan plan{.epoch = epoch, .step = step};
  plan.mode.sp = static_cast<int32_t>(in->Number("mode.sp", kRanksMax));
  plan.mode.tp = static_cast<int32_t>(in->Number("mode.tp", kRanksMax));
  plan.own_tokens = static_cast<int64_t>(in->Number("own_tokens", kTokensMax));
  plan.wanted_blocks = static_cast<int64_t>(in->Number("wanted_blocks", kBlocksMax));
  for (const auto& [handles, name] :
       {std::pair(&plan.removed, "removed"), std::pair(&plan.preempted, "preempted")}) {
    for (uint64_t left = in->Count(name); left > 0; --left) {
      handles->push_back(static_cast<uint32_t>(in->Number(name, kHandleMax)));
    }
  }
  for (uint64_t left = in->Count("added"); left > 0; --left) {
    FeedAdded& added = plan.added.emplace_back();
    added.handle = static_cast<uint32_t>(in->Number("added.handle", kHandleMax));
    added.id.router = in->Fixed("added.id.router");
    added.id.serial = in->Number("added.id.serial");
    added.epoch.value = in->Number("added.epoch");
  }
  for (uint64_t left = in->Count("slices"); left > 0; --left) {
    FeedSlice& slice = plan.slices.emplace_back();
    slice.handle = static_cast<uint32_t>(in->Number("slices.handle", kHandleMax));
    slice.tokens = static_cast<int64_t>(in->Number("slices.tokens", kTokensMax));
  }
  return plan;
}

std::vector<int32_t> ReadTokens(const char* field, Reader* in) {
  std::vector<int32_t> tokens;
  for (uint64_t left = in->Count(field); left > 0; --left) {
    tokens.push_back(static_cast<int32_t>(in->Number(field, std::numeric_limits<int32_t>::max())));
  }
  return tokens;
}

FeedOffer ReadOffer(uint64_t epoch, Reader* in) {
  FeedOffer offer{.epoch = epoch};
  offer.id.router = in->Fixed("id.router");
  offer.id.serial = in->Number("id.serial");
  offer.request_epoch.value = in->Number("request_epoch");
  offer.prompt_tokens = static_cast<int64_t>(in->Number("prompt_tokens", kTokensMax));
  offer.sent_tokens =
      static_cast<int64_t>(in->Number("sent_tokens", static_cast<uint64_t>(offer.prompt_tokens)));
  offer.output_tokens = static_cast<int64_t>(in->Number("output_tokens", kTokensMax));
  offer.max_tokens = static_cast<int64_t>(in->Number("max_tokens", kTokensMax));
  offer.min_tokens = static_cast<int64_t>(in->Number("min_tokens", kTokensMax));
  offer.kv_tokens = static_cast<int64_t>(in->Number("kv_tokens", kTokensMax));
  offer.sampling = in->Bytes("sampling", FeedOffer::kSamplingMax);
  offer.stop_token_ids = ReadTokens("stop_token_ids", in);
  offer.first = static_cast<int64_t>(in->Number("first", 2 * kTokensMax));
  offer.tokens = ReadTokens("tokens", in);
  offer.priority = static_cast<int32_t>(
      static_cast<uint32_t>(in->Number("priority", std::numeric_limits<uint32_t>::max())));
  offer.age_us = static_cast<int64_t>(in->Number("age_us", std::numeric_limits<int64_t>::max()));
  return offer;
}

FeedReserve ReadReserve(uint64_t epoch, Reader* in) {
  FeedReserve reserve{.epoch = epoch, .number = in->Number("number")};
  reserve.id.router = in->Fixed("id.router");
  reserve.id.serial = in->Number("id.serial");
  reserve.request_epoch.value = in->Number("request_epoch");
  reserve.tokens = static_cast<int64_t>(in->Number("tokens", kTokensMax));
  return reserve;
}

FeedReserved ReadReserved(uint64_t epoch, Reader* in) {
  FeedReserved reserved{.epoch = epoch, .number = in->Number("number")};
  reserved.id.router = in->Fixed("id.router");
  reserved.id.serial = in->Number("id.serial");
  reserved.request_epoch.value = in->Number("request_epoch");
  if (in->Number("kept", 1) == 0) {
    reserved.why = in->Reason("why");
    return reserved;
  }
  for (uint64_t left = in->Count("blocks"); left > 0; --left) {
    reserved.blocks.push_back({static_cast<int32_t>(in->Number("blocks", kBlocksMax))});
  }
  reserved.memory = in->Bytes("memory", FeedReserved::kMemoryMax);
  return reserved;
}

FeedMessage ReadKind(uint64_t kind, uint64_t epoch, uint64_t step, Reader* in) {
  const auto blocks = [in] { return static_cast<int64_t>(in->Number("free_blocks", kBlocksMax)); };
  switch (kind) {
    case 0:
      return ReadPlan(epoch, step, in);
    case 1:
      return FeedReady{epoch, step};
    case 2: {
      FeedRefusal refusal{epoch, step, blocks(), {}};
      refusal.why = in->Reason("why");
      return refusal;
    }
    case 3:
      return FeedGo{epoch, step};
    case 4:
      return FeedCancel{epoch, step};
    case 5: {
      FeedDone done{epoch, step, blocks(), in->Number("counted")};
      done.own_tokens = static_cast<int64_t>(in->Number("own_tokens", kTokensMax));
      done.digest = in->Fixed("digest");
      done.own_waits = in->Number("own_waits", 1) == 1;
      return done;
    }
    case 6:
      return FeedEnd{epoch, in->Reason("why")};
    case 7:
      return ReadOffer(epoch, in);
    case 8: {
      FeedWithdraw withdraw{.epoch = epoch};
      withdraw.id.router = in->Fixed("id.router");
      withdraw.id.serial = in->Number("id.serial");
      withdraw.request_epoch.value = in->Number("request_epoch");
      return withdraw;
    }
    case 9:
      return FeedOwn{epoch, static_cast<int64_t>(in->Number("own_tokens", kTokensMax))};
    case 10:
      return ReadReserve(epoch, in);
    default:
      return ReadReserved(epoch, in);
  }
}

}  // namespace

std::string Encode(const FeedMessage& message) {
  Writer out;
  out.Number(message.index());
  out.Number(std::visit([](const auto& one) { return one.epoch; }, message));
  out.Number(StepOf(message));
  std::visit(Write{out}, message);
  return out.Take();
}

absl::StatusOr<FeedMessage> DecodeFeed(std::span<const std::byte> bytes) {
  Reader in(bytes);
  const uint64_t kind = in.Number("kind", std::variant_size_v<FeedMessage> - 1);
  const uint64_t epoch = in.Number("epoch");
  const uint64_t step = in.Number("step");
  FeedMessage message = ReadKind(kind, epoch, step, &in);
  return in.Finish(std::move(message));
}

}  // namespace skein::scheduler

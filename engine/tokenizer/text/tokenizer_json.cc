#include "engine/tokenizer/text/tokenizer_json.h"

#include <optional>

namespace skein::engine {
namespace {

constexpr size_t kDepthMax = 64;

// Receives the parser's events. Inside model.vocab and model.merges they go to the compact lists,
// elsewhere to the document.
class EventReader : public nlohmann::json_sax<Json> {
 public:
  explicit EventReader(TokenizerJson* out) : out_(*out) {}

  const std::string& error() const { return error_; }

  bool null() override { return Scalar(nullptr); }
  bool boolean(bool value) override { return Scalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return Scalar(value); }
  bool binary(binary_t&) override { return false; }

  bool number_integer(number_integer_t value) override {
    return InVocabTop() ? VocabId(value) : Scalar(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!InVocabTop()) return Scalar(value);
    return VocabId(value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value));
  }

  bool string(string_t& value) override {
    if (part_ != Part::kMerges) return Scalar(std::move(value));
    if (part_depth_ == 1) {
      MergeLine(value);
    } else {
      out_.merges.Add(value);
      ++pair_size_;
    }
    return true;
  }

  bool key(string_t& value) override {
    if (part_ == Part::kVocab && part_depth_ == 1) {
      out_.vocab_tokens.Add(value);
    } else if (part_ == Part::kDocument) {
      key_ = std::move(value);
    }
    return true;
  }

  bool start_object(size_t) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    error_ = e.what();
    return false;
  }

 private:
  enum class Part { kDocument, kVocab, kMerges };

  bool InVocabTop() const { return part_ == Part::kVocab && part_depth_ == 1; }

  bool VocabId(int64_t id) {
    out_.vocab_ids.push_back(id);
    return true;
  }

  void MergeLine(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      return Malformed("model.merges: a merge is not two tokens with a space between");
    out_.merges.Add(line.substr(0, space));
    out_.merges.Add(line.substr(space + 1));
  }

  void Malformed(const char* why) {
    if (out_.vocab_error.empty()) out_.vocab_error = why;
  }

  bool Scalar(Json value) {
    if (part_ == Part::kVocab) return Malformed("model.vocab: an id is not an integer"), true;
    if (part_ == Part::kMerges) return Malformed("model.merges: a merge is not a string"), true;
    Place(std::move(value));
    return true;
  }

  // Puts a value where the document is being built; null for a second root, which the parser never
  // sends.
  Json* Place(Json value) {
    if (open_.empty()) return &(out_.document = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  bool AtModelKey(const char* name) const {
    return open_.size() == 2 && in_model_ && key_ == name && open_.back()->is_object();
  }

  bool Open(Json container) {
    if (open_.size() + part_depth_ >= kDepthMax) {
      error_ = "nests too deeply";
      return false;
    }
    if (part_ != Part::kDocument) return OpenInPart(container.is_array());
    if (AtModelKey("vocab")) return OpenPart(Part::kVocab, container.is_object());
    if (AtModelKey("merges")) return OpenPart(Part::kMerges, container.is_array());
    if (open_.size() == 1) in_model_ = key_ == "model";
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool OpenPart(Part part, bool right_type) {
    if (seen_[static_cast<int>(part)]++) Malformed("model: vocab or merges occurs more than once");
    if (!right_type)
      Malformed(part == Part::kVocab ? "model.vocab: not an object" : "model.merges: not an array");
    part_ = part;
    part_depth_ = 1;
    return true;
  }

  bool OpenInPart(bool is_array) {
    if (part_ == Part::kVocab || part_depth_ > 1 || !is_array)
      Malformed("model.vocab or model.merges: an entry has the wrong type");
    ++part_depth_;
    pair_size_ = 0;
    return true;
  }

  bool Close() {
    if (part_ == Part::kDocument) {
      open_.pop_back();
      return true;
    }
    if (part_ == Part::kMerges && part_depth_ == 2 && pair_size_ != 2)
      Malformed("model.merges: a merge is not a pair");
    if (--part_depth_ == 0) part_ = Part::kDocument;
    return true;
  }

  TokenizerJson& out_;
  std::string error_;
  std::vector<Json*> open_;  // containers of the document, outermost first
  std::string key_;
  bool in_model_ = false;
  Part part_ = Part::kDocument;
  size_t part_depth_ = 0;
  size_t pair_size_ = 0;
  int seen_[3] = {};
};

}  // namespace

absl::StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view text) {
  TokenizerJson parsed;
  EventReader reader(&parsed);
  if (!Json::sax_parse(text.data(), text.data() + text.size(), &reader))
    return absl::InvalidArgumentError("tokenizer.json: " + reader.error());
  if (parsed.vocab_error.empty() && parsed.vocab_tokens.size() != parsed.vocab_ids.size())
    parsed.vocab_error = "model.vocab: an id is not an integer";
  return parsed;
}

}  // namespace skein::engine

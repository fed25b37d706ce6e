#include "services/openai/json_body.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace skein::services::openai {
namespace {

using Json = nlohmann::ordered_json;

// Builds the document. The library's own builder searches an object for each new key, so a hostile
// client could make parsing quadratic.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(Json* root) : root_(root) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    auto& members = level.value->get_ref<Json::object_t&>();
    const auto [it, fresh] = level.keys.emplace(name, members.size());
    if (fresh) {
      static_cast<MemberList&>(members).emplace_back(std::move(name), nullptr);
    }
    level.member = it->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_ = "it is not valid JSON at byte " + std::to_string(position);
    return false;
  }

  const std::string& error() const { return error_; }

 private:
  using MemberList = std::vector<std::pair<const std::string, Json>>;

  struct Level {
    Json* value;
    std::unordered_map<std::string, size_t> keys;  // of an object, with their positions
    size_t member = 0;                             // index of the next value
  };

  // Where the next value goes. The pointer is valid until the enclosing container gets its next
  // value, which is after this one is complete.
  Json* Place(Json value) {
    if (levels_.empty()) {
      *root_ = std::move(value);
      return root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    Json& member = level.value->get_ref<Json::object_t&>().begin()[level.member].second;
    member = std::move(value);
    return &member;
  }

  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (levels_.size() >= static_cast<size_t>(kJsonDepthMax)) {
      error_ = "it nests more than " + std::to_string(kJsonDepthMax) + " levels deep";
      return false;
    }
    levels_.push_back({Place(std::move(value)), {}, 0});
    return true;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  Json* root_;
  std::vector<Level> levels_;
  std::string error_;
};

}  // namespace

MaybeError ParseJson(std::string_view text, nlohmann::ordered_json* json) {
  *json = nullptr;
  Builder builder(json);
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return std::nullopt;
  const std::string why = builder.error().empty() ? "it is malformed" : builder.error();
  return ApiError{400, "The request body could not be parsed: " + why + ".", "", "invalid_json"};
}

}  // namespace skein::services::openai

#include "engine/tokenizer/components/post_processor.h"

#include "engine/tokenizer/bpe/bpe.h"

namespace skein::engine {
namespace {

absl::StatusOr<int32_t> ReadId(const Json& json, const std::string& path) {
  if (!json.is_number_integer() || json < 0 || json > BpeModel::kIdMax)
    return InvalidField(path, "an id in range", json);
  return json.get<int32_t>();
}

// special_tokens: {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}
absl::Status AppendTemplateToken(const Json& special_tokens, const std::string& name,
                                 const std::string& path, std::vector<int32_t>* ids) {
  const auto it = special_tokens.find(name);
  if (it == special_tokens.end())
    return InvalidField(path, "the name of one of special_tokens", name);
  JsonReader reader(*it, path);
  const Json* list = reader.Array("ids");
  if (list == nullptr) reader.Invalid("ids", "an array");
  if (!reader.ok()) return reader.status();
  for (const Json& item : *list) {
    const absl::StatusOr<int32_t> id = ReadId(item, reader.PathOf("ids"));
    if (!id.ok()) return id.status();
    ids->push_back(*id);
  }
  return absl::OkStatus();
}

absl::StatusOr<Surroundings> ReadTemplate(const Component& component) {
  JsonReader reader(*component.json, component.path);
  const Json* single = reader.Array("single");
  const Json* special_tokens = reader.Object("special_tokens");
  if (single == nullptr) reader.Invalid("single", "an array");
  if (!reader.ok()) return reader.status();
  const Json none = Json::object();
  Surroundings out;
  int texts = 0;
  for (size_t i = 0; i < single->size(); ++i) {
    JsonReader item((*single)[i], reader.PathOf("single") + "[" + std::to_string(i) + "]");
    const Json* special = item.Object("SpecialToken");
    const Json* sequence = item.Object("Sequence");
    if (!item.ok()) return item.status();
    if ((special == nullptr) == (sequence == nullptr))
      return InvalidField(item.path(), "SpecialToken or Sequence", item.json());
    JsonReader fields(special ? *special : *sequence, item.path());
    const std::string id = fields.String("id", "");
    if (!fields.ok()) return fields.status();
    if (special == nullptr) {
      ++texts;
      if (id != "A") return NotSupported(fields.PathOf("id"), id);
      continue;
    }
    absl::Status status = AppendTemplateToken(special_tokens ? *special_tokens : none, id,
                                              item.path(), texts ? &out.after : &out.before);
    if (!status.ok()) return status;
  }
  if (texts != 1) return InvalidField(reader.PathOf("single"), "the text once", *single);
  return out;
}

// "cls": ["<s>", 0]
absl::StatusOr<int32_t> ReadNamedId(JsonReader* reader, const char* key) {
  const Json* pair = reader->Array(key);
  if (pair == nullptr || pair->size() != 2) reader->Invalid(key, "a token and its id");
  if (!reader->ok()) return reader->status();
  return ReadId((*pair)[1], reader->PathOf(key));
}

absl::StatusOr<Surroundings> ReadClsSep(const Component& component) {
  JsonReader reader(*component.json, component.path);
  const absl::StatusOr<int32_t> cls = ReadNamedId(&reader, "cls");
  if (!cls.ok()) return cls.status();
  const absl::StatusOr<int32_t> sep = ReadNamedId(&reader, "sep");
  if (!sep.ok()) return sep.status();
  return Surroundings{{*cls}, {*sep}};
}

absl::StatusOr<Surroundings> ReadOne(const Component& component) {
  if (component.type == "ByteLevel") return Surroundings{};
  if (component.type == "TemplateProcessing") return ReadTemplate(component);
  if (component.type == "RobertaProcessing" || component.type == "BertProcessing")
    return ReadClsSep(component);
  return NotSupported(component.path + ".type", component.type);
}

}  // namespace

absl::StatusOr<Surroundings> ReadPostProcessor(const Json* json) {
  std::vector<Component> components;
  absl::Status status = FlattenSequence(json, "post_processor", "processors", &components);
  if (!status.ok()) return status;
  Surroundings all;
  for (const Component& component : components) {
    const absl::StatusOr<Surroundings> one = ReadOne(component);
    if (!one.ok()) return one.status();
    all.before.insert(all.before.begin(), one->before.begin(), one->before.end());
    all.after.insert(all.after.end(), one->after.begin(), one->after.end());
  }
  return all;
}

}  // namespace skein::engine

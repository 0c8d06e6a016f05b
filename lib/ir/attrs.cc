#include "ir/attrs.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "base/hash.h"

namespace meshtrain {
namespace {

bool name_less(const Attrs::value_type& entry, std::string_view name) {
  return std::string_view(entry.first) < name;
}

uint64_t hash_of(const AttrValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return static_cast<uint64_t>(*integer);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return *number == 0 ? 0 : std::bit_cast<uint64_t>(*number);  // 0 and -0 are equal
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    return hash_text(*text);
  }
  const auto& list = std::get<std::vector<int64_t>>(value);
  return hash_bytes(list.data(), list.size() * sizeof(int64_t));
}

}  // namespace

Attrs::Attrs(std::initializer_list<value_type> list) {
  if (list.size() == 0) {
    return;
  }
  table_ = std::make_shared<Table>();
  std::vector<value_type>& entries = table_->entries;
  entries.reserve(list.size());
  for (const value_type& entry : list) {  // a handful, mostly in order
    auto at = entries.end();
    while (at != entries.begin() && entry.first < std::prev(at)->first) {
      --at;
    }
    if (at == entries.begin() || std::prev(at)->first != entry.first) {
      entries.insert(at, entry);
    }
  }
}

Attrs::const_iterator Attrs::find(std::string_view name) const {
  // Few entries, and names that mostly differ in length: faster than a binary search.
  const_iterator entry = begin();
  for (const const_iterator last = end(); entry != last; ++entry) {
    if (std::string_view(entry->first) == name) {
      break;
    }
  }
  return entry;
}

const AttrValue& Attrs::at(std::string_view name) const {
  const const_iterator found = find(name);
  if (found == end()) {
    throw std::out_of_range("no attribute `" + std::string(name) + "`");
  }
  return found->second;
}

Attrs::Table& Attrs::own() {
  if (table_ == nullptr) {
    table_ = std::make_shared<Table>();
  } else if (table_.use_count() > 1) {
    table_ = std::make_shared<Table>(table_->entries);
  }
  table_->known_hash.store(0, std::memory_order_relaxed);
  return *table_;
}

AttrValue& Attrs::operator[](std::string_view name) {
  std::vector<value_type>& entries = own().entries;
  auto at = std::lower_bound(entries.begin(), entries.end(), name, name_less);
  if (at == entries.end() || at->first != name) {
    at = entries.emplace(at, std::string(name), AttrValue());
  }
  return at->second;
}

std::pair<Attrs::const_iterator, bool> Attrs::emplace(std::string_view name, AttrValue value) {
  if (const const_iterator found = find(name); found != end()) {
    return {found, false};
  }
  (*this)[name] = std::move(value);
  return {find(name), true};
}

size_t Attrs::erase(std::string_view name) {
  const const_iterator found = find(name);
  if (found == end()) {
    return 0;
  }
  const ptrdiff_t index = found - begin();
  std::vector<value_type>& entries = own().entries;
  entries.erase(entries.begin() + index);
  if (entries.empty()) {
    table_.reset();
  }
  return 1;
}

uint64_t Attrs::hash() const {
  if (table_ == nullptr) {
    return 0;
  }
  uint64_t hash = table_->known_hash.load(std::memory_order_relaxed);
  if (hash == 0) {
    for (const auto& [name, value] : table_->entries) {
      hash = hash_mix(hash_mix(hash, hash_text(name)), hash_of(value) + value.index());
    }
    hash = hash == 0 ? 1 : hash;
    table_->known_hash.store(hash, std::memory_order_relaxed);
  }
  return hash;
}

bool Attrs::operator==(const Attrs& other) const {
  if (table_ == other.table_) {
    return true;
  }
  return size() == other.size() && std::equal(begin(), end(), other.begin());
}

}  // namespace meshtrain

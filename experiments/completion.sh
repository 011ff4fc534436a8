# What @shell@ completes of fedjax-opt. To have it in each shell:
#   fedjax-opt --completion=@shell@ > @file@
# and add to @start@:
#   source @file@
@before@
_fedjax_opt() {
  local word="${COMP_WORDS[COMP_CWORD]}" flag="" start="" words="" files=""
  # Bash has --flag, = and its value as three words, zsh as one.
  if [[ "$word" == --*=* ]]; then
    flag="${word%%=*}" start="${word%%=*}=" word="${word#*=}"
  elif [[ "$word" == "=" ]]; then
    flag="${COMP_WORDS[COMP_CWORD - 1]}" word=""
  elif (( COMP_CWORD > 1 )) && [[ "${COMP_WORDS[COMP_CWORD - 1]}" == "=" ]]
  then
    flag="${COMP_WORDS[COMP_CWORD - 2]}"
  fi
  if [[ -n "$flag" ]]; then
    case "$flag" in
@values@
    esac
  elif (( COMP_CWORD == 1 )); then
    words=@commands@
  else
    case "${COMP_WORDS[1]}" in
@flags@
    esac
  fi
  local found each
  if [[ -n "$files" ]]; then
    word="${word/#\~\//$HOME/}" word="${word//\\ / }"
    found="$(printf '%s\n' "$word"*)"
  else
    found="$(compgen -W "$words" -- "$word")"
  fi
  COMPREPLY=()
  while IFS= read -r each; do
    if [[ -z "$each" || ( -n "$files" && ! -e "$each" ) ]]; then
      continue
    elif [[ -n "$files" && -d "$each" ]]; then
      each="${each// /\\ }/"
    elif [[ "$each" != *= ]]; then
      each="${each// /\\ } "
    fi
    COMPREPLY+=("$start$each")
  done <<< "$found"
}
complete -o nospace -F _fedjax_opt fedjax-opt
